use super::*;
use crate::prologue::places;

/// Mapping of a library.
const BASE: u64 = 0x7f00_0000_0000;
const LIBRARY: std::ops::Range<u64> = BASE..BASE + 0x20_0000;

/// `mov [rdi], rsi` and `ret`.
const STORE: &[u8] = &[0x48, 0x89, 0x37, 0xc3, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00];
/// [`STORE`] with another operand: its trampolines lie on other pages.
const NEIGHBOUR: &[u8] = &[0x48, 0x89, 0x3f, 0xc3, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00];

fn candidate(entry: u64, bytes: &[u8]) -> Candidate<'_> {
    let function =
        Function { entry, bytes, size: Some(bytes.len() as u64), arguments: 2, is_free: false };
    Candidate { function, places: places(&function) }
}

fn layout(mapped: &[std::ops::Range<u64>]) -> Layout {
    Layout::new(mapped.iter().cloned(), None, None, 8 << 20)
}

#[test]
fn the_first_place_is_used_when_its_landings_are_free() {
    let of = candidate(BASE + 0x1000, STORE);
    let plan = plan(std::slice::from_ref(&of), &layout(&[LIBRARY]));
    assert_eq!(plan.hooks.len(), 1);
    assert_eq!(plan.hooks[0].place, of.places[0]);
    assert!(plan.unplaced.is_empty());
}

#[test]
fn the_second_place_is_used_if_a_landing_of_the_first_is_taken() {
    let of = candidate(BASE + 0x1000, STORE);
    for landing in &of.places[0].landings {
        let taken = landing - landing % PAGE_BYTES..landing + 1;
        let plan = plan(std::slice::from_ref(&of), &layout(&[LIBRARY, taken]));
        assert_ne!(plan.hooks.first().map(|hook| &hook.place), Some(&of.places[0]));
    }
    let plan =
        plan(std::slice::from_ref(&of), &layout(&[std::ops::Range { start: 0, end: 1 << 47 }]));
    assert_eq!((plan.hooks.len(), plan.unplaced), (0, vec![0]));
    assert!(plan.pages.is_empty());
}

#[test]
fn two_names_of_one_function_are_hooked_once() {
    let of = candidate(BASE + 0x1000, STORE);
    let places = 1;
    let mut twice = vec![of.clone(), of];
    twice.iter_mut().for_each(|of| of.places.truncate(places));
    let plan = plan(&twice, &layout(&[LIBRARY]));
    assert_eq!((plan.hooks.len(), plan.unplaced), (1, vec![1]));
}

#[test]
fn pages_have_the_trampolines_at_the_landings() {
    let candidates = [candidate(BASE + 0x1000, STORE), candidate(BASE + 0x1040, NEIGHBOUR)];
    let plan = plan(&candidates, &layout(&[LIBRARY]));
    assert_eq!(plan.hooks.len(), 2);
    let pages = plan.contents(|candidate| 0x1111 * (1 + candidate as u64)).unwrap();
    let byte = |address: u64| {
        let page = pages.iter().find(|page| page.address == address - address % PAGE_BYTES);
        page.unwrap().bytes[(address % PAGE_BYTES) as usize]
    };
    let bytes =
        |address: u64, length: u64| -> Vec<u8> { (address..address + length).map(byte).collect() };
    for hook in &plan.hooks {
        for (landing, slot) in hook.place.landings.iter().zip(&hook.slots) {
            let code = trampoline(&hook.place, *landing, *slot).unwrap();
            assert_eq!(bytes(*landing, code.len() as u64), code);
            let target = 0x1111 * (1 + hook.candidate as u64);
            assert_eq!(bytes(*slot, 8), target.to_le_bytes());
        }
        let function = &candidates[hook.candidate].function;
        let code = original(&hook.place, function, hook.original).unwrap();
        assert_eq!(bytes(hook.original, code.len() as u64), code);
    }
}

#[test]
fn the_heap_and_the_stack_can_grow() {
    let heap = 0x5555_0000_0000..0x5555_0010_0000;
    let stack = 0x7ffc_0000_0000..0x7ffc_0002_1000;
    let growing = heap.start..heap.end + (1 << 30);
    let mapped = [heap.clone(), stack.clone()];
    let layout = Layout::new(mapped, Some(growing), Some(stack.clone()), 8 << 20);
    let is_free = |address: u64| layout.is_free(&(address..address + PAGE_BYTES));
    assert!(!is_free(heap.end) && !is_free(heap.end + (1 << 30) - PAGE_BYTES));
    assert!(is_free(heap.end + (1 << 30)) && is_free(heap.start - PAGE_BYTES));
    assert!(!is_free(stack.end - (129 << 20)) && is_free(stack.end - (130 << 20)));
    assert!(is_free(stack.end));
}
