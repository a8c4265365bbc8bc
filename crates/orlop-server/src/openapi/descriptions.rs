//! Descriptions of built-in types and fields, operations and their parameters, in Kubernetes' own words.
//!
//! `cargo xtask generate` writes the table; it is committed, so every build has it. It stays compressed and is
//! opened only while an OpenAPI document is written.

use std::{collections::HashMap, io::Read};

use serde_json::Value;

pub(super) static COMPRESSED: &[u8] = include_bytes!("../../data/descriptions.tsv.gz");

/// The decompressed descriptions.
#[derive(Debug)]
pub(super) struct Text(String);

impl Text {
    pub(super) fn open() -> Self {
        let mut text = String::new();
        // The test below opens the same bytes, so they cannot be damaged.
        let _ = flate2::read::GzDecoder::new(COMPRESSED).read_to_string(&mut text);
        Self(text)
    }

    pub(super) fn index(&self) -> Descriptions<'_> {
        let column = |line| {
            let mut columns = str::splitn(line, 3, '\t');
            Some(((columns.next()?, columns.next()?), columns.next()?))
        };
        Descriptions(self.0.lines().filter_map(column).collect())
    }
}

/// Descriptions by type and field.
#[derive(Debug, Default)]
pub(super) struct Descriptions<'a>(HashMap<(&'a str, &'a str), &'a str>);

impl Descriptions<'_> {
    /// Of a field, or with an empty field of the type itself.
    pub(super) fn of(&self, name: &str, field: &str) -> Option<String> {
        serde_json::from_str(self.0.get(&(name, field))?).ok()
    }

    /// Returns the values of a field that is an enumeration. The items of a list are the field with `[]`.
    pub(super) fn values(&self, name: &str, field: &str) -> Option<Value> {
        serde_json::from_str(self.0.get(&(&*format!("enum {name}"), field))?).ok()
    }
}

#[cfg(test)]
mod tests {
    use orlop_api::schema::builtin::{resources, type_of};

    use super::*;

    #[test]
    fn every_served_kind_and_its_fields_are_described() {
        let text = Text::open();
        let descriptions = text.index();
        for resource in resources() {
            let entry = type_of(resource.group, resource.version, resource.kind).unwrap();
            // Kubernetes leaves the metadata of some kinds undescribed.
            for row in entry.rows().filter(|row| row.field != "metadata") {
                let described = descriptions.of(entry.name(), row.field);
                assert!(described.is_some(), "{} {:?} has no description", entry.name(), row.field);
            }
        }
        assert_eq!(descriptions.of("io.k8s.api.core.v1.Pod", "nothing"), None);
    }
}
