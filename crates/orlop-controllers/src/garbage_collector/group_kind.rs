//! Kinds without their version.

/// A kind in whatever version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct GroupKind {
    pub(super) group: String,
    pub(super) kind: String,
}

impl GroupKind {
    pub(super) fn of(api_version: &str, kind: &str) -> Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self { group: group.to_owned(), kind: kind.to_owned() }
    }
}
