//! Which calls come as allocations do: places in the program that allocations come through, by how their part of all was in the windows so far.
//!
//! A call of a function that allocates, or of one that does nothing else, runs as often as is allocated through it: that is known before anything is probed. Of such places those are
//! chosen, one after another, whose sum is most like all in every group of windows, and that together run as rarely as markers have to.

use crate::target::spots::Spot;
use sampler_common::wire::MARKERS;

/// Of what they may be together a place has at least so much: of the others there are hardly samples.
const LEAST: f64 = 0.05;
/// As much less unlike, relatively, the sum has to become by one more.
const WORTH: f64 = 0.02;
/// Places that are listed at most, one set after the other.
const MOST: usize = 3 * MARKERS;

/// A place that allocations come through.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Site<T = Spot> {
    pub(super) at: T,
    /// Objects by group of windows.
    pub(super) objects: Vec<f64>,
}

/// Those that follow all best, the best set first, of which none has more than so much of all.
pub(super) fn following<T>(mut sites: Vec<Site<T>>, all: &[f64], most_part: f64) -> Vec<T> {
    let total: f64 = all.iter().sum();
    let part = |site: &Site<T>| site.objects.iter().sum::<f64>() / total;
    sites.retain(|site| (LEAST * most_part..=most_part).contains(&part(site)));
    let mut chosen = Vec::new();
    while !sites.is_empty() && chosen.len() < MOST {
        let before = chosen.len();
        best(&mut sites, all, most_part * total, &mut chosen);
        if chosen.len() == before {
            break;
        }
    }
    chosen
}

/// Takes a set of such places out of `sites`.
fn best<T>(sites: &mut Vec<Site<T>>, all: &[f64], most: f64, chosen: &mut Vec<T>) {
    let mut sum = vec![0.0; all.len()];
    let mut unlike = f64::INFINITY;
    for _ in 0..MARKERS {
        let with = |site: &Site<T>| unlikeness(&added(&sum, &site.objects), all);
        let is_room = |site: &Site<T>| added(&sum, &site.objects).iter().sum::<f64>() <= most;
        let rated = sites.iter().enumerate().filter(|(_, of)| is_room(of));
        let rated = rated.map(|(at, of)| (with(of), at));
        let Some((less, at)) = rated.min_by(|(a, _), (b, _)| a.total_cmp(b)) else { break };
        if less > (1.0 - WORTH) * unlike {
            break;
        }
        let site = sites.remove(at);
        (sum, unlike) = (added(&sum, &site.objects), less);
        chosen.push(site.at);
    }
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
        assert_eq!(following(of, &ALL, 0.1)[0], 3);
    }

    #[test]
    fn phases_are_met_by_different_ones() {
        let of = sites(&[&[0.0, 9.0, 0.0, 0.0], &[3.0, 0.0, 6.0, 0.0], &[0.0, 0.0, 0.0, 12.0]]);
        let mut set = following(of.clone(), &ALL, 0.1);
        set.truncate(3);
        set.sort_unstable();
        assert_eq!(set, [0, 1, 2]);
        // Not if all of them were too often.
        assert_eq!(following(of, &ALL, 0.02), [2, 1, 0]);
    }

    #[test]
    fn what_has_no_samples_is_none() {
        assert!(following(sites(&[&[0.0; 4], &[0.0, 1.0, 0.0, 0.0]]), &ALL, 0.1).is_empty());
        assert!(following(Vec::<Site<usize>>::new(), &[], 0.1).is_empty());
    }
}
