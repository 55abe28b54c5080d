//! Rules of receivers for OTLP profiles beyond the published messages, as code.
//!
//! * Parca, `pkg/normalizer/otel.go` and `pkg/parcacol/querier.go` (v0.28): a resource, samples in
//!   every profile, no link, a duration only in profiles that are differences.
//! * Pyroscope, `pkg/ingester/otlp/convert.go`, `pkg/validation/limits.go` and
//!   `pkg/symbolizer/symbolizer.go` (v2.2): labels of resources, scopes and samples, 30 of them of
//!   2,048 bytes, 16,000 samples, times of the last hour, addresses of the file.
//! * OpenTelemetry, `specification/profiles/mappings.md`: a build id in every mapping.

use anyhow::{Context as _, Result, bail, ensure};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development::{
    Link, Profile, ProfilesDictionary, ResourceProfiles,
};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MAX_LABELS: usize = 30;
const MAX_LABEL_BYTES: usize = 2048;
const MAX_SAMPLES: usize = 16_000;
const MAX_AGE: Duration = Duration::from_secs(3600);
const BUILD_IDS: [&str; 2] =
    ["process.executable.build_id.gnu", "process.executable.build_id.htlhash"];

/// Checks a request.
pub fn check(message: &ExportProfilesServiceRequest) -> Result<()> {
    let dictionary = message.dictionary.as_ref().context("no dictionary")?;
    check_dictionary(dictionary)?;
    ensure!(!message.resource_profiles.is_empty(), "a request with nothing in it");
    for resource in &message.resource_profiles {
        let labels = labels(resource)?;
        ensure!(labels.len() <= MAX_LABELS, "{} labels", labels.len());
        for key in ["service.name", "host.name"] {
            ensure!(labels.contains_key(key), "no {key} in {labels:?}");
        }
        ensure!(!resource.scope_profiles.is_empty(), "a resource without profiles");
        for scope in &resource.scope_profiles {
            let of = scope.scope.as_ref().context("no scope")?;
            ensure!(of.attributes.is_empty() && !of.name.is_empty(), "labels in {of:?}");
            ensure!(!scope.profiles.is_empty(), "a scope without profiles");
            scope.profiles.iter().try_for_each(|profile| check_profile(profile, dictionary))?;
        }
    }
    Ok(())
}

/// The labels of a resource.
pub fn labels(resource: &ResourceProfiles) -> Result<BTreeMap<String, String>> {
    let attributes = &resource.resource.as_ref().context("no resource")?.attributes;
    let mut labels = BTreeMap::new();
    for attribute in attributes {
        let Some(Value::StringValue(text)) =
            attribute.value.as_ref().and_then(|of| of.value.as_ref())
        else {
            bail!("{attribute:?} is no text");
        };
        ensure!((1..=MAX_LABEL_BYTES).contains(&text.len()), "{} has {text:?}", attribute.key);
        let before = labels.insert(attribute.key.clone(), text.clone());
        ensure!(before.is_none(), "{} is there twice", attribute.key);
    }
    Ok(labels)
}

fn check_profile(profile: &Profile, dictionary: &ProfilesDictionary) -> Result<()> {
    let text = |index: i32| dictionary.string_table.get(index as usize).context("a string");
    let of_type = profile.sample_type.as_ref().context("no type")?;
    let name = text(of_type.type_strindex)?;
    ensure!(
        (1..=MAX_SAMPLES).contains(&profile.samples.len()),
        "{} samples",
        profile.samples.len()
    );
    ensure!(profile.profile_id.len() == 16, "id {:?}", profile.profile_id);
    ensure!(profile.attribute_indices.is_empty(), "labels of a profile");
    let is_window = name.starts_with("alloc_");
    ensure!(is_window || name.starts_with("inuse_"), "type {name}");
    ensure!(is_window == (profile.duration_nano > 0), "{name} of {} ns", profile.duration_nano);
    let begun = UNIX_EPOCH + Duration::from_nanos(profile.time_unix_nano);
    let age = SystemTime::now().duration_since(begun).context("a profile of the future")?;
    ensure!(age < MAX_AGE, "a profile of {age:?} ago");
    for sample in &profile.samples {
        ensure!(sample.attribute_indices.is_empty() && sample.link_index == 0, "{sample:?}");
        ensure!(sample.values.len() == 1 && sample.values[0] > 0, "{sample:?}");
        let stack = dictionary.stack_table.get(sample.stack_index as usize).context("a stack")?;
        ensure!(sample.stack_index > 0 && !stack.location_indices.is_empty(), "an empty stack");
    }
    Ok(())
}

fn check_dictionary(of: &ProfilesDictionary) -> Result<()> {
    let zero = of.mapping_table.first() == Some(&Default::default())
        && of.location_table.first() == Some(&Default::default())
        && of.function_table.first() == Some(&Default::default())
        && of.stack_table.first() == Some(&Default::default())
        && of.attribute_table.first() == Some(&Default::default())
        && of.string_table.first().is_some_and(String::is_empty);
    ensure!(zero && of.link_table == [Link::default()], "entry 0 of a table is not empty");
    for mapping in &of.mapping_table[1..] {
        let is_file = (mapping.memory_start, mapping.file_offset, mapping.memory_limit);
        ensure!(is_file == (0, 0, u64::MAX), "{mapping:?} is that of a process");
        let key = |index: &i32| {
            let attribute = of.attribute_table.get(*index as usize)?;
            of.string_table.get(attribute.key_strindex as usize).map(String::as_str)
        };
        let keys: Option<Vec<&str>> = mapping.attribute_indices.iter().map(key).collect();
        let keys = keys.context("an attribute that is none")?;
        ensure!(keys.iter().any(|key| BUILD_IDS.contains(key)), "no build id in {mapping:?}");
    }
    for location in &of.location_table[1..] {
        ensure!((location.mapping_index as usize) < of.mapping_table.len(), "{location:?}");
        let in_file = location.mapping_index > 0;
        ensure!(in_file == (location.address > 0), "{location:?} is an address of nothing");
        let lines = location.lines.iter().map(|line| line.function_index as usize);
        ensure!(lines.max().is_none_or(|most| most < of.function_table.len()), "{location:?}");
    }
    for stack in &of.stack_table[1..] {
        let most = stack.location_indices.iter().max().copied().unwrap_or_default();
        ensure!((most as usize) < of.location_table.len(), "{stack:?}");
    }
    Ok(())
}
