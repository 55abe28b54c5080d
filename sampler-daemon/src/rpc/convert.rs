//! Between the protocol's profile and [`sampler_common::profile::Profile`], both ways.

use super::v1;
use sampler_common::profile::Profile;

/// The protocol's form of a profile.
pub fn to_wire(profile: &Profile) -> v1::Profile {
    let _ = profile;
    todo!()
}

/// A profile from the protocol; what came over the network is checked (indices, numbers).
pub fn from_wire(profile: v1::Profile) -> Result<Profile, String> {
    let _ = profile;
    todo!()
}
