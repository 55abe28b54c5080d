//! Names from debug data in every form that compilers and distributions make: one test for each row
//! of the tables in `docs/names.md`. Each test builds its files.

mod case;

use anyhow::{Result, ensure};
use case::{Case, Names};

/// Checks which names samplerd shows for a program that this script builds.
fn shows(script: &str, names: Names) -> Result<()> {
    Case::made_by(script)?.shows(names)
}

#[test]
fn symbols_alone_name_functions() -> Result<()> {
    shows("compile", Names::Symbols)?;
    shows("compile && strip program", Names::Exported)
}

#[test]
fn each_version_of_dwarf_is_read() -> Result<()> {
    for version in [2, 3, 4, 5] {
        shows(&format!("compile -g -gdwarf-{version}"), Names::All)?;
    }
    Ok(())
}

#[test]
fn compressed_sections_are_read() -> Result<()> {
    for kind in ["zlib", "zlib-gnu", "zstd"] {
        let script =
            format!("compile -g && objcopy --compress-debug-sections={kind} program program");
        shows(&script, Names::All)?;
    }
    Ok(())
}

#[test]
fn a_debug_file_is_found_by_build_id() -> Result<()> {
    shows(r#"compile -g && detach "$(by_build_id program)""#, Names::All)
}

/// Puts the debug data into a file that the program names, and that has no build id.
const DEBUG_LINK: &str = r#"
    compile -g -Wl,--build-id=none
    mkdir -p "debug$PWD"
    detach "debug$PWD/program.debug"
    objcopy --add-gnu-debuglink="debug$PWD/program.debug" program
"#;

#[test]
fn a_debug_file_is_found_by_debug_link() -> Result<()> {
    shows(DEBUG_LINK, Names::All)
}

#[test]
fn a_debug_file_with_another_checksum_is_not_used() -> Result<()> {
    let script = format!("{DEBUG_LINK}\nprintf x >> \"debug$PWD/program.debug\"");
    shows(&script, Names::Exported)
}

#[test]
fn a_debug_file_with_another_build_id_is_not_used() -> Result<()> {
    let script = r#"
        compile -g
        cp program other
        file=$(by_build_id program)
        detach ignored
        compile -g -DOTHER=1 -O1
        objcopy --only-keep-debug program "$file"
        mv other program && strip program
    "#;
    shows(script, Names::Exported)
}

/// Only `/usr/lib/debug` is searched, since anybody may have written the program.
#[test]
fn a_debug_file_beside_the_program_is_not_opened() -> Result<()> {
    let script = r"
        compile -g
        detach program.debug
        objcopy --add-gnu-debuglink=program.debug program
    ";
    shows(script, Names::Exported)
}

#[test]
fn a_debug_file_that_not_everybody_may_read_is_not_opened() -> Result<()> {
    let file = r#"compile -g; file=$(by_build_id program); detach "$file"; chmod 640 "$file""#;
    shows(file, Names::Exported)?;
    let directory = r#"compile -g; detach "$(by_build_id program)"; chmod 750 debug/.build-id/*"#;
    shows(directory, Names::Exported)
}

/// Puts a compressed symbol table into the program, as Fedora does.
const MINI_DEBUG_INFO: &str = r#"
    compile -g
    nm program --format=posix --defined-only | awk '$2 == "t" { print $1 }' | sort > kept
    objcopy --only-keep-debug program mini
    objcopy -S --remove-section .gdb_index --remove-section .comment --keep-symbols=kept mini
    strip program
    xz mini
    objcopy --add-section .gnu_debugdata=mini.xz program
"#;

#[test]
fn mini_debug_info_is_read() -> Result<()> {
    shows(MINI_DEBUG_INFO, Names::Symbols)
}

#[test]
fn debug_data_that_dwz_has_compacted_is_read() -> Result<()> {
    shows("compile -g && dwz program", Names::All)?;
    shows("compile -g -gdwarf-4 && dwz program", Names::All)
}

/// Makes two programs and moves what they share to a file of its own. `$1` is the name of that
/// file in the programs, further arguments are options of dwz.
const DWZ: &str = r#"
    share() {
        name=$1
        shift
        compile -g "$VERSION"
        cp program other
        mkdir -p debug/.dwz
        dwz -m debug/.dwz/common -M "$name" "$@" program other
        readelf -S program | grep -q "$LINK"
    }
"#;

fn shows_shared(version: u32, script: &str, names: Names) -> Result<()> {
    shows(&format!("{DWZ}\nVERSION=-gdwarf-{version} LINK=gnu_debugaltlink\n{script}"), names)
}

#[test]
fn what_dwz_has_moved_to_a_shared_file_is_read() -> Result<()> {
    for version in [4, 5] {
        shows_shared(version, "share /usr/lib/debug/.dwz/common", Names::All)?;
    }
    let detached = r#"share ../../.dwz/common; detach "$(by_build_id program)""#;
    shows_shared(5, detached, Names::All)?;
    let by_id = r#"share /nowhere/common; mv debug/.dwz/common "$(by_build_id debug/.dwz/common)""#;
    shows_shared(5, by_id, Names::All)
}

#[test]
fn dwarf_5_has_a_link_of_its_own_to_a_shared_file() -> Result<()> {
    let share = "VERSION=-gdwarf-5 LINK=debug_sup\nshare /usr/lib/debug/.dwz/common --dwarf-5";
    let script = format!("{DWZ}\n{share}");
    shows(&script, Names::All)
}

/// Functions keep the names of their symbols.
#[test]
fn a_missing_shared_file_leaves_no_empty_name() -> Result<()> {
    let share = "share /usr/lib/debug/.dwz/common";
    shows_shared(5, &format!("{share}; rm debug/.dwz/common"), Names::Symbols)?;
    // A file with another build id.
    shows_shared(5, &format!("{share}; cp program debug/.dwz/common"), Names::Symbols)
}

#[test]
fn split_debug_data_is_read_below_the_debug_directory() -> Result<()> {
    for version in [4, 5] {
        let script = format!(
            r#"compile -g -gsplit-dwarf -gdwarf-{version}; mkdir -p "debug$PWD"; mv ./*.dwo "debug$PWD""#
        );
        shows(&script, Names::All)?;
    }
    shows("compile -g -gsplit-dwarf", Names::SymbolsAndLines)
}

#[test]
fn packages_of_split_debug_data_are_read_below_the_debug_directory() -> Result<()> {
    let package = r#"
        compile -g -gsplit-dwarf -gdwarf-4
        mkdir -p "debug$PWD"
        dwp -e program -o program.dwp
        rm ./*.dwo
    "#;
    shows(&format!(r#"{package} mv program.dwp "debug$PWD""#), Names::All)?;
    shows(package, Names::SymbolsAndLines)
}

#[test]
fn versions_of_symbols_are_not_shown() -> Result<()> {
    let case = Case::made_by(
        r#"
        printf 'V1 { versioned; };\nV2 { versioned; };\n' > map
        cc -O2 -fno-builtin -shared -fPIC -Wl,--version-script=map \
            "$SOURCES/versioned.c" -o libversioned.so
        cc -O2 "$SOURCES/calls.c" -o program -L. -lversioned -lm -Wl,-rpath,"$PWD"
        nm libversioned.so | grep -q versioned@@V2
        objcopy --strip-symbol=second_version libversioned.so
        "#,
    )?;
    let profiled = case.profiled()?;
    let names = profiled.names_with("versioned");
    ensure!(!names.is_empty() && names.iter().all(|name| *name == "versioned"), "{names:?}");
    profiled.daemon.stop()
}

#[test]
fn names_of_rust_are_demangled() -> Result<()> {
    for debug in ["", "-g"] {
        let case = Case::made_by(&format!(
            r#"rustc --edition 2024 -O {debug} -C symbol-mangling-version=v0 \
                "$SOURCES/v0.rs" -o program"#
        ))?;
        let profiled = case.profiled()?;
        let names = profiled.names_with("filled");
        ensure!(names.contains(&"<v0::shop::Cart<u64>>::filled"), "{names:?}");
        ensure!(profiled.names_with("_R").is_empty(), "{}", profiled.profile.folded());
        profiled.has_no_empty_name()?;
        profiled.daemon.stop()?;
    }
    Ok(())
}

/// A name that cannot be demangled is shown as it is.
#[test]
fn names_of_cpp_are_whole() -> Result<()> {
    for debug in ["", "-g"] {
        let case = Case::made_by(&format!(r#"c++ -O0 {debug} "$SOURCES/shared.cpp" -o program"#))?;
        let profiled = case.profiled()?;
        ensure!(!profiled.names_with("void shop::fill<long>(long)").is_empty());
        // cpp_demangle does not know this form of name.
        let whole = "_ZSt11make_sharedIN4shop4CartIlEEJRlEESt10shared_ptr";
        let names = profiled.names_with("make_shared");
        let is_whole = |name: &&str| name.starts_with(whole) || name.contains("std::make_shared<");
        ensure!(!names.is_empty() && names.iter().all(is_whole), "{names:?}");
        profiled.has_no_empty_name()?;
        profiled.daemon.stop()?;
    }
    Ok(())
}
