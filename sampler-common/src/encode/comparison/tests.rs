use super::*;
use crate::comparison::{Comparison, compare};
use crate::encode::fixture;
use crate::encode::text::layout::columns;
use crate::profile::{Kind, Profile};

fn compared(a: &Profile, b: &Profile) -> Comparison {
    compare(&fixture::question(a, b)).unwrap()
}

/// Compares the fixture with a copy that lacks one stack and is half as long.
fn changed(kind: Kind) -> Comparison {
    let (a, mut b) = (fixture::profile(kind), fixture::profile(kind));
    b.stacks.remove(1);
    b.stacks_total -= 1;
    b.duration_ns /= 2;
    compared(&a, &b)
}

#[test]
fn golden() {
    fixture::golden("difference.80.txt", text(&changed(Kind::Alloc), 80, 10));
    let json = serde_json::to_string_pretty(&object(&changed(Kind::Live))).unwrap() + "\n";
    fixture::golden("difference.json", json);
}

#[test]
fn comparisons_fit_the_page() {
    for comparison in [
        changed(Kind::Alloc),
        compared(&fixture::hostile(), &fixture::hostile()),
        compared(&fixture::empty(), &fixture::profile(Kind::Live)),
        compared(&fixture::stride(), &fixture::stride()),
    ] {
        for width in [80, 100, 200] {
            let text = text(&comparison, width, 100);
            assert!(text.lines().all(|line| columns(line) <= width), "{width}\n{text}");
            assert!(!text.contains('\u{1b}'));
        }
    }
}

#[test]
fn omitted_rows_are_counted() {
    let text = text(&changed(Kind::Alloc), 80, 2);
    assert!(text.ends_with("… 3 more (--top N shows N)\n"), "{text}");
}
