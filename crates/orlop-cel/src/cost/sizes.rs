//! Sizes of variables whose type is not a schema.

use std::{collections::BTreeMap, sync::Arc};

/// The largest size of a value and of its parts, for cost estimates.
#[derive(Clone, Debug)]
pub struct Sizes {
    max_elements: u64,
    parts: Parts,
}

#[derive(Clone, Debug)]
enum Parts {
    None,
    Fields(BTreeMap<&'static str, Arc<Sizes>>),
    Entries { key: Arc<Sizes>, value: Arc<Sizes> },
}

impl Sizes {
    /// A value without parts: a string of up to so many characters.
    #[must_use]
    pub fn scalar(max_elements: u64) -> Self {
        Self { max_elements, parts: Parts::None }
    }

    /// An object with these fields.
    #[must_use]
    pub fn object(fields: impl IntoIterator<Item = (&'static str, Sizes)>) -> Self {
        let fields = fields.into_iter().map(|(name, sizes)| (name, Arc::new(sizes))).collect();
        Self { max_elements: 0, parts: Parts::Fields(fields) }
    }

    /// A map with up to so many entries.
    #[must_use]
    pub fn map(max_elements: u64, key: Sizes, value: Sizes) -> Self {
        let parts = Parts::Entries { key: Arc::new(key), value: Arc::new(value) };
        Self { max_elements, parts }
    }

    pub(crate) fn max_elements(&self) -> u64 {
        self.max_elements
    }

    /// Sizes of a field, or of a map's value that is selected like one.
    pub(crate) fn field(&self, name: &str) -> Option<&Arc<Sizes>> {
        match &self.parts {
            Parts::Fields(fields) => fields.get(name),
            // Kubernetes looks no further into maps of maps.
            Parts::Entries { value, .. } => matches!(value.parts, Parts::None).then_some(value),
            Parts::None => None,
        }
    }

    pub(crate) fn keys(&self) -> Option<&Arc<Sizes>> {
        match &self.parts {
            Parts::Entries { key, .. } => Some(key),
            _ => None,
        }
    }

    pub(crate) fn values(&self) -> Option<&Arc<Sizes>> {
        match &self.parts {
            Parts::Entries { value, .. } => Some(value),
            _ => None,
        }
    }
}
