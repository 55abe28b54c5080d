use super::super::fixture;
use super::*;
use roxmltree::{Document, Node};

fn written(profile: &Profile) -> String {
    let format = FlameGraph { measure: Measure::Space };
    String::from_utf8(fixture::encoded(&format, profile)).unwrap()
}

pub(super) fn of_class<'a>(document: &'a Document, class: &str) -> Vec<Node<'a, 'a>> {
    document.descendants().filter(|node| node.attribute("class") == Some(class)).collect()
}

/// The text without style and script, which are files of their own.
pub(super) fn bare(text: &str) -> String {
    let text = text.replace(include_str!("style.css"), "STYLE\n");
    text.replace(include_str!("script.js"), "SCRIPT\n")
}

/// Start, value and depth of every frame, in the order of the file.
pub(super) fn boxes(document: &Document) -> Vec<(f64, f64, usize)> {
    let frames = of_class(document, "f");
    let each = frames.iter().map(|frame| {
        let numbers = frame.attribute("data-v").unwrap().split(' ');
        let numbers: Vec<f64> = numbers.map(|number| number.parse().unwrap()).collect();
        assert!(numbers[2] <= numbers[1] + 1.0 && numbers[1] <= numbers[3] + 1.0, "{numbers:?}");
        (numbers[0], numbers[1], frame.attribute("data-d").unwrap().parse().unwrap())
    });
    each.collect()
}

#[test]
fn golden() {
    fixture::golden("alloc.svg", bare(&written(&fixture::profile(Kind::Alloc))));
}

#[test]
fn frames_lie_within_their_callers() {
    for profile in [fixture::profile(Kind::Alloc), fixture::profile(Kind::Live), fixture::hostile()]
    {
        let text = written(&profile);
        let document = Document::parse(&text).unwrap();
        let mut callers: Vec<(f64, f64)> = Vec::new();
        for (start, value, depth) in boxes(&document) {
            callers.truncate(depth);
            assert_eq!(callers.len(), depth, "a frame without a caller");
            if let Some((outer, width)) = callers.last() {
                // Both ends are rounded.
                assert!(start >= outer - 1.0 && start + value <= outer + width + 2.0);
            }
            callers.push((start, value));
        }
    }
}

#[test]
fn every_title_has_the_number_and_its_interval() {
    let text = written(&fixture::profile(Kind::Live));
    let document = Document::parse(&text).unwrap();
    let frames = of_class(&document, "f");
    assert!(frames.len() > 10);
    for frame in frames {
        let title = frame.first_element_child().unwrap().text().unwrap();
        let numbers = title.lines().last().unwrap();
        assert!(numbers.contains(" … ") && numbers.contains("held, "), "{title}");
        assert!(numbers.contains('±') && numbers.contains(" sample"), "{title}");
    }
}

#[test]
fn titles_of_a_stride_say_that_it_has_no_interval() {
    let text = written(&fixture::stride());
    assert!(text.contains("(no interval, at least "), "{text}");
    assert!(Document::parse(&text).is_ok());
}

#[test]
fn widths_are_objects_if_objects_are_measured() {
    let format = FlameGraph { measure: Measure::Objects };
    let profile = fixture::profile(Kind::Alloc);
    let text = String::from_utf8(fixture::encoded(&format, &profile)).unwrap();
    let document = Document::parse(&text).unwrap();
    assert_eq!(document.root_element().attribute("data-unit"), Some("objects"));
    let objects = profile.totals.alloc_objects.estimate.value;
    assert!((boxes(&document)[0].1 - objects).abs() <= 0.5);
}

#[test]
fn hostile_names_are_text_and_nothing_else() {
    let mut profile = fixture::hostile();
    let script = "</text></svg><script>alert(1)</script>]]>\" onload=\"alert(2)";
    profile.locations[2].lines[0].function = script.into();
    profile.locations[3].lines[0].file = format!("{script}\u{0}\u{ffff}");
    profile.mappings[0].path.push_str(script);
    profile.notes = vec![script.into()];
    let text = written(&profile);
    let document = Document::parse(&text).unwrap();
    let scripts = document.descendants().filter(|node| node.has_tag_name("script")).count();
    assert_eq!(
        scripts,
        document
            .descendants()
            .filter(|node| {
                node.has_tag_name("script") && node.text().unwrap().contains("use strict")
            })
            .count()
    );
    assert_eq!(scripts, 1);
    let handlers = document.descendants().flat_map(|node| node.attributes());
    assert_eq!(handlers.filter(|attribute| attribute.name().starts_with("on")).count(), 0);
    let labels = document.descendants().filter(|node| node.has_tag_name("text"));
    assert!(labels.filter_map(|node| node.text()).any(|label| label == script));
    assert!(text.len() < 40_000 + include_str!("script.js").len(), "{} bytes", text.len());
    assert!(!text.contains('\u{202e}') && !text.contains('\u{1b}'));
}

#[test]
fn an_empty_profile_gives_an_empty_picture() {
    let text = written(&fixture::empty());
    assert_eq!(boxes(&Document::parse(&text).unwrap()), [(0.0, 0.0, 0)]);
    assert!(!text.contains("NaN"));
}

#[test]
fn the_same_profile_is_the_same_file() {
    let profile = fixture::profile(Kind::Alloc);
    assert_eq!(written(&profile), written(&profile));
}
