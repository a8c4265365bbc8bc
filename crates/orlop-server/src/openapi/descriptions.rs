//! What built-in types and their fields mean, in Kubernetes' own words. `build.rs` takes them out of the
//! k8s-openapi crate; they are kept compressed and opened only while a document is being written.

use std::{collections::HashMap, io::Read};

static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.gz"));

/// Every description, open.
#[derive(Debug)]
pub(super) struct Text(String);

impl Text {
    pub(super) fn open() -> Self {
        let mut text = String::new();
        // What the build wrote can be read; were it not so, there would be no descriptions.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_fields_are_described() {
        let text = Text::open();
        let descriptions = text.index();
        let pod = "io.k8s.api.core.v1.Pod";
        assert!(descriptions.of(pod, "").is_some_and(|text| text.contains("containers")));
        assert!(descriptions.of(pod, "spec").is_some());
        assert_eq!(descriptions.of(pod, "nothing"), None);
    }
}
