use super::*;
use std::collections::HashSet;
use std::sync::atomic::AtomicBool;

fn table() -> Box<Table> {
    Box::new(Table::new())
}

#[test]
fn the_table_is_a_set() {
    let table = table();
    let address = |n: usize| 0x5555_0000_0000 + n * 48;
    let mut held = HashSet::new();
    let mut random = 1u64;
    for _ in 0..if cfg!(miri) { 2_000 } else { 200_000 } {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let block = address((random >> 33) as usize % (20 * LOWEST_LEVEL));
        if random >> 63 == 0 {
            let entered = table.enter(block);
            let expected = if held.insert(block) { Entered::New } else { Entered::Replaced };
            assert_eq!(entered, expected);
        } else {
            assert_eq!(table.remove(block), held.remove(&block));
        }
    }
    // The levels that have ten times as many blocks as the lowest has slots: 168 KiB.
    assert!(table.used_levels.load(Ordering::Relaxed) <= 3);
}

#[test]
#[cfg_attr(miri, ignore = "too many blocks to interpret")]
fn the_table_is_full_at_its_bound() {
    let table = table();
    let address = |n: usize| 0x7f00_0000_0000 + n * 4096;
    let held = (0..400_000).take_while(|n| table.enter(address(*n)) == Entered::New).count();
    assert!(held > 250_000, "{held}");
    assert_eq!(table.enter(address(held)), Entered::Full);
    assert!((0..held).all(|n| table.remove(address(n))));
    assert!(!table.remove(address(held)));
}

#[test]
fn realloc_ends_a_block_or_keeps_it() {
    let table = table();
    table.enter(64);
    let of = table.begin_move(64).unwrap();
    table.stay(of);
    let of = table.begin_move(64).unwrap();
    assert!(table.end(of) && table.ended(of));
    assert!(!table.remove(64) && table.begin_move(64).is_none());
    // The address is given out again before the end was reported.
    table.enter(64);
    let of = table.begin_move(64).unwrap();
    assert_eq!(table.enter(64), Entered::Replaced);
    assert!(!table.end(of));
    assert!(table.remove(64));
}

/// A thread that got the address without being sampled ends nothing. It would report the end of the
/// earlier block a second time.
#[test]
fn an_end_is_reported_by_one_thread() {
    let table = table();
    table.enter(64);
    let of = table.begin_move(64).unwrap();
    assert!(!table.remove(64), "under realloc");
    assert!(table.end(of));
    assert!(!table.remove(64), "its end is being reported");
    assert!(table.ended(of));
    assert_eq!(table.enter(64), Entered::New);
    assert!(table.remove(64));
}

/// The address has a new block, which moves as well: its move is not that of the first block.
#[test]
fn a_move_ends_its_own_block() {
    let table = table();
    for is_removed in [false, true] {
        table.enter(64);
        let first = table.begin_move(64).unwrap();
        assert_eq!(table.enter(64), Entered::Replaced);
        if is_removed {
            assert!(table.remove(64));
            assert_eq!(table.enter(64), Entered::New);
        }
        let second = table.begin_move(64).unwrap();
        assert!(!table.end(first));
        table.stay(first);
        assert!(table.end(second) && !table.ended(first) && table.ended(second));
    }
}

/// A thread is lost while it reports an end. A thread that enters the address goes on, but without
/// a block that the end could be mistaken for.
#[test]
fn a_lost_thread_does_not_block_others() {
    let table = table();
    table.enter(64);
    let of = table.begin_move(64).unwrap();
    assert!(table.end(of));
    assert_eq!(table.enter(64), Entered::Lost);
    assert!(!table.ended(of) && !table.remove(64));
    assert_eq!(table.enter(64), Entered::New);
    assert!(!table.ended(of) && table.remove(64));
}

/// A thread that enters an address whose end is being reported waits for the report.
#[test]
fn ends_are_reported_before_new_blocks() {
    let table = table();
    let (is_reported, is_reporting) = (AtomicBool::new(false), AtomicBool::new(false));
    for _ in 0..if cfg!(miri) { 10 } else { 200 } {
        is_reported.store(false, Ordering::SeqCst);
        is_reporting.store(false, Ordering::SeqCst);
        table.enter(64);
        let of = table.begin_move(64).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_reporting.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
                if table.enter(64) == Entered::New {
                    assert!(is_reported.load(Ordering::SeqCst));
                }
            });
            assert!(table.end(of));
            is_reporting.store(true, Ordering::SeqCst);
            is_reported.store(true, Ordering::SeqCst);
            table.ended(of);
        });
        assert!(table.remove(64));
    }
}
