use super::*;
use std::collections::HashSet;
use std::sync::atomic::AtomicBool;

fn table() -> Box<Table> {
    Box::new(Table::new())
}

#[test]
fn is_a_set() {
    let table = table();
    let address = |n: usize| 0x5555_0000_0000 + n * 48;
    let mut held = HashSet::new();
    let mut random = 1u64;
    for _ in 0..200_000 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let block = address((random >> 33) as usize % 20_000);
        if random >> 63 == 0 {
            let entered = table.enter(block);
            let expected = if held.insert(block) { Entered::New } else { Entered::Again };
            assert_eq!(entered, expected);
        } else {
            assert_eq!(table.remove(block), held.remove(&block));
        }
    }
    // Where 10,000 blocks lie: 168 KiB.
    assert!(table.used_levels.load(Ordering::Relaxed) <= 3);
}

#[test]
fn holds_as_many_as_it_says_and_no_more() {
    let table = table();
    let address = |n: usize| 0x7f00_0000_0000 + n * 4096;
    let held = (0..400_000).take_while(|n| table.enter(address(*n)) == Entered::New).count();
    assert!(held > 250_000, "{held}");
    assert_eq!(table.enter(address(held)), Entered::Full);
    assert!((0..held).all(|n| table.remove(address(n))));
    assert!(!table.remove(address(held)));
}

#[test]
fn realloc_is_an_end_or_none() {
    let table = table();
    table.enter(64);
    let slot = table.begin_move(64).unwrap();
    table.stay(slot, 64);
    let slot = table.begin_move(64).unwrap();
    assert!(table.end(slot, 64) && table.ended(slot, 64));
    assert!(!table.remove(64) && table.begin_move(64).is_none());
    // The address is given out again before the end was said.
    table.enter(64);
    let slot = table.begin_move(64).unwrap();
    assert_eq!(table.enter(64), Entered::Again);
    assert!(!table.end(slot, 64));
    assert!(table.remove(64));
}

/// A thread that was lost while it said an end: who enters the address goes on.
#[test]
fn a_lost_thread_holds_up_nobody() {
    let table = table();
    table.enter(64);
    let slot = table.begin_move(64).unwrap();
    assert!(table.end(slot, 64));
    assert_eq!(table.enter(64), Entered::Again);
    assert!(!table.ended(slot, 64) && table.remove(64));
}

/// Whoever enters an address whose end is being said waits for that.
#[test]
fn ends_are_said_before_beginnings() {
    let table = table();
    let (said, saying) = (AtomicBool::new(false), AtomicBool::new(false));
    for _ in 0..200 {
        said.store(false, Ordering::SeqCst);
        saying.store(false, Ordering::SeqCst);
        table.enter(64);
        let slot = table.begin_move(64).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !saying.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
                if table.enter(64) == Entered::New {
                    assert!(said.load(Ordering::SeqCst));
                }
            });
            assert!(table.end(slot, 64));
            saying.store(true, Ordering::SeqCst);
            said.store(true, Ordering::SeqCst);
            table.ended(slot, 64);
        });
        assert!(table.remove(64));
    }
}
