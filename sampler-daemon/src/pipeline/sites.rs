//! Which calls come as allocations do: places in the program that allocations come through, by how their part of all was in the windows so far.
//!
//! A call of a function that allocates, or of one that does nothing else, runs as often as is allocated through it: that is known before anything is probed. Of such places those are
//! chosen, one after another, whose sum is most like all in every group of windows, and that together run as rarely as markers have to.

use sampler_common::wire::MARKERS;

/// Of what they may be together a place has at least so much: of the others there are hardly samples.
const LEAST: f64 = 0.05;
/// Places that are looked at at most, those first that most comes through.
const MOST_LOOKED_AT: usize = 128;
/// As much less unlike, relatively, the sum has to become by one more.
const WORTH: f64 = 0.02;
/// Places that are listed at most, one set after the other.
const MOST: usize = 3 * MARKERS;

/// A place that allocations come through.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Site<T> {
    pub(super) at: T,
    /// Objects by group of windows.
    pub(super) objects: Vec<f64>,
}

impl<T> Site<T> {
    fn sum(&self) -> f64 {
        self.objects.iter().sum()
    }
}

/// Those that follow all best, the best set first, of which none has more than so much of all; as they are found to be at a closer look, which some do not stand.
pub(super) fn following<T: Ord, U>(
    mut sites: Vec<Site<T>>,
    all: &[f64],
    most_part: f64,
    mut look: impl FnMut(T) -> Option<U>,
) -> Vec<U> {
    let most = most_part * all.iter().sum::<f64>();
    sites.retain(|site| site.sum() > 0.0 && (LEAST * most..=most).contains(&site.sum()));
    sites.sort_by(|a, b| b.sum().total_cmp(&a.sum()).then_with(|| a.at.cmp(&b.at)));
    sites.truncate(MOST_LOOKED_AT);
    let look = |Site { at, objects }| look(at).map(|at| Site { at, objects });
    let mut left: Vec<Site<U>> = sites.into_iter().filter_map(look).collect();
    let mut chosen = Vec::new();
    while chosen.len() < MOST {
        let set = best(&mut left, all, most);
        if set.is_empty() {
            break;
        }
        chosen.extend(set);
    }
    chosen
}

/// Takes a set of such places out of `sites`; none, if none is left.
fn best<T>(sites: &mut Vec<Site<T>>, all: &[f64], most: f64) -> Vec<T> {
    let mut set = Vec::new();
    let mut sum = vec![0.0; all.len()];
    let mut unlike = f64::INFINITY;
    for _ in 0..MARKERS {
        let with = sites.iter().map(|site| added(&sum, &site.objects)).enumerate();
        let is_room = |(_, with): &(usize, Vec<f64>)| with.iter().sum::<f64>() <= most;
        let rated = with.filter(is_room).map(|(at, with)| (unlikeness(&with, all), at, with));
        let Some((less, at, with)) = rated.min_by(|(a, ..), (b, ..)| a.total_cmp(b)) else { break };
        if less > (1.0 - WORTH) * unlike {
            break;
        }
        (sum, unlike) = (with, less);
        set.push(sites.remove(at).at);
    }
    set
}

fn added(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// Σ(v/s − A)² over ΣA², s being the part Σv/ΣA: as [`Fit`](sampler_common::duty::Fit) judges them, but with what is chance, so that more samples are better.
fn unlikeness(of: &[f64], all: &[f64]) -> f64 {
    let part = of.iter().sum::<f64>() / all.iter().sum::<f64>();
    let squares = all.iter().map(|all| all * all).sum::<f64>();
    of.iter().zip(all).map(|(of, all)| (of / part - all).powi(2)).sum::<f64>() / squares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sites(of: &[&[f64]]) -> Vec<Site<usize>> {
        let site = |(at, objects): (usize, &&[f64])| Site { at, objects: objects.to_vec() };
        of.iter().enumerate().map(site).collect()
    }

    const ALL: [f64; 4] = [100.0, 300.0, 200.0, 400.0];

    #[test]
    fn those_that_follow_come_first() {
        // In one phase; half of all; all the time, in few samples; and all the time.
        let of = sites(&[
            &[0.0, 20.0, 0.0, 0.0],
            &[50.0; 4],
            &[0.0, 2.0, 1.0, 2.0],
            &[2.0, 7.0, 4.0, 9.0],
        ]);
        assert_eq!(following(of, &ALL, 0.1, Some)[0], 3);
    }

    #[test]
    fn phases_are_met_by_different_ones() {
        let of = sites(&[&[0.0, 9.0, 0.0, 0.0], &[3.0, 0.0, 6.0, 0.0], &[0.0, 0.0, 0.0, 12.0]]);
        let mut set = following(of.clone(), &ALL, 0.1, Some);
        set.truncate(3);
        set.sort_unstable();
        assert_eq!(set, [0, 1, 2]);
        // Not if all of them were too often.
        assert_eq!(following(of, &ALL, 0.02, Some), [2, 1, 0]);
    }

    #[test]
    fn what_has_no_samples_is_none() {
        assert!(following(sites(&[&[0.0; 4], &[0.0, 1.0, 0.0, 0.0]]), &ALL, 0.1, Some).is_empty());
        assert!(following(Vec::<Site<usize>>::new(), &[], 0.1, Some).is_empty());
    }
}
