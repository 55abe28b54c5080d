//! Allocates without end in generic functions.

use std::io::Write as _;

mod shop {
    pub struct Cart<T>(Vec<T>);

    impl<T: Default> Cart<T> {
        #[inline(never)]
        pub fn filled(count: usize) -> Cart<T> {
            Cart((0..count).map(|_| T::default()).collect())
        }
    }

    impl<T> Drop for Cart<T> {
        fn drop(&mut self) {
            std::hint::black_box(&self.0);
        }
    }
}

fn main() {
    println!("waiting");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    loop {
        for _ in 0..200 {
            std::hint::black_box(shop::Cart::<u64>::filled(125));
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
