use super::*;

#[test]
fn functions_belong_to_the_library_above_them() {
    let text = "# pools\nlibrary libpool.so*\n malloc pool_get size=2 # the pool comes first\n\
                free pool_put pointer=2\n\nlibrary */game\nrealloc grow old=3 size=1 count=2\n";
    let spec = Spec::parse(text).unwrap();
    let pool = spec.entries("/opt/lib/libpool.so.1", "");
    assert_eq!(pool.len(), 2);
    assert_eq!(pool[0], entry("pool_get", Role::Malloc, Shape::new(1, NONE, NONE)));
    assert_eq!(pool[1], entry("pool_put", Role::Free, Shape::new(NONE, NONE, 1)));
    assert_eq!(spec.entries("/opt/hidden", "libpool.so"), pool);
    let game = spec.entries("/opt/game", "");
    assert_eq!(game, [entry("grow", Role::Realloc, Shape::new(0, 1, 2))]);
    assert_eq!(spec.entries("/opt/other", ""), []);
}

#[test]
fn arguments_default_to_those_of_the_role() {
    let spec = Spec::parse("library x\nposix_memalign f\ncalloc g\nfree h\nnew n").unwrap();
    let shapes: Vec<Shape> = spec.entries("x", "").iter().map(|entry| entry.shape).collect();
    let expected = [[2, NONE, 0], [1, 0, NONE], [NONE, NONE, 0], [0, NONE, NONE]];
    assert_eq!(shapes, expected.map(|[size, count, pointer]| Shape::new(size, count, pointer)));
}

#[test]
fn a_bad_line_is_named() {
    for (text, line, words) in [
        ("malloc f", 1, "must come first"),
        ("library", 1, "one pattern must follow"),
        ("library a b", 1, "one pattern must follow"),
        ("\nlibrary x\nmallok f", 3, "mallok is no role (use malloc, calloc"),
        ("library x\nmalloc", 2, "the name of a function"),
        ("library x\nmalloc f size", 2, "not ARGUMENT=NUMBER"),
        ("library x\nmalloc f size=0", 2, "arguments are 1 to 6"),
        ("library x\nmalloc f size=7", 2, "arguments are 1 to 6"),
        ("library x\nmalloc f old=1", 2, "malloc has no argument old"),
        ("library x\nfree f size=1", 2, "free has no argument size"),
        ("library x\nmalloc f\ncalloc f", 3, "f is there already"),
    ] {
        let (number, error) = Spec::parse(text).unwrap_err();
        assert!(number == line && error.contains(words), "{text:?}: {number} {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let many: String = (0..=MAX_FUNCTIONS).map(|n| format!("malloc f{n}\n")).collect();
    assert!(Spec::parse(&format!("library x\n{many}")).is_err());
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = Spec::read(Path::new("/nonexistent/spec")).unwrap_err();
    assert!(error.starts_with("--allocator-spec /nonexistent/spec: "), "{error}");
}
