//! Names that programs give to their generated code, split into function, file and line.
//!
//! V8 writes kind, tier, function and place into one name of its perf map, as in
//! `JS:*parse /srv/app.js:12:20`. A function has separate code for each tier. With the tier in its
//! name it would be shown as several functions.

use sampler_common::profile::Line;

/// Kinds of JavaScript code in V8's names. `LazyCompile` and `Function` are of older versions.
const KINDS: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];
/// Tiers of V8: interpreted, compiled at once, optimized in two ways.
const TIERS: [char; 5] = ['~', '^', '+', '*', '\''];
/// Beginnings of a place. A place may contain spaces.
const PLACES: [&str; 3] = [" /", " file:", " node:"];

/// The line of a name in a perf map. The number of the line is where the function begins.
pub(super) fn line(name: &str) -> Line {
    of_v8(name).unwrap_or_else(|| Line { function: name.to_owned(), ..Line::default() })
}

fn of_v8(name: &str) -> Option<Line> {
    let rest = KINDS.iter().find_map(|kind| name.strip_prefix(kind))?;
    let rest = rest.trim_start_matches(TIERS);
    let known = PLACES.iter().filter_map(|begin| rest.find(begin)).min();
    let (function, place) = rest.split_at(known.or_else(|| rest.rfind(' '))?);
    let (place, last) = place.trim_start().rsplit_once(':')?;
    let last: u32 = last.parse().ok()?;
    // Node 18 writes the line, later versions the line and the column.
    let before = place.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
    let (file, line) = before.unwrap_or((place, last));
    let function = if function.is_empty() { "(anonymous)" } else { function };
    let file = file.strip_prefix("file://").unwrap_or(file);
    Some(Line { function: function.into(), file: file.into(), line })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_v8_has_function_file_and_line() {
        for (name, function, file, number) in [
            ("JS:*parse /srv/my app.js:12:20", "parse", "/srv/my app.js", 12),
            ("JS:~get size file:///srv/a.mjs:7:3", "get size", "/srv/a.mjs", 7),
            ("LazyCompile:*alloc node:buffer:391:30", "alloc", "node:buffer", 391),
            ("LazyCompile:~keepPreview /srv/a.js:10", "keepPreview", "/srv/a.js", 10),
            (
                "Function:^createUnsafeBuffer node:internal/buffer:1056",
                "createUnsafeBuffer",
                "node:internal/buffer",
                1056,
            ),
            ("Eval:~ /srv/a.js:1", "(anonymous)", "/srv/a.js", 1),
            ("JS:^ /srv/a.js:20:13", "(anonymous)", "/srv/a.js", 20),
            ("JS:+'hot fn t2.js:1:15", "hot fn", "t2.js", 1),
        ] {
            let expected = Line { function: function.into(), file: file.into(), line: number };
            assert_eq!(line(name), expected, "{name}");
        }
    }

    #[test]
    fn other_names_stay() {
        for name in ["Lcom/Direct;::outer(I)V", "JS:", "JS:*f", "RegExp:a b:1:2", "BytecodeHandler"]
        {
            assert_eq!(line(name).function, name);
        }
    }
}
