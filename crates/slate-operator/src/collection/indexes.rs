//! Difference between declared and present indexes.

use slate_client::protocol::{IndexDefinition, IndexInfo};

/// Difference between the desired and the existing indexes of a collection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) missing: Vec<IndexDefinition>,
    /// Names of indexes to drop.
    pub(super) extra: Vec<String>,
}

/// State of a collection on its server.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) documents: u64,
    pub(super) indexes: Vec<IndexInfo>,
}

impl Progress {
    pub(super) fn is_ready(&self) -> bool {
        self.indexes.iter().all(|index| index.ready)
    }

    /// Returns the indexes whose build failed.
    pub(super) fn failed(&self) -> impl Iterator<Item = &IndexInfo> {
        self.indexes.iter().filter(|index| index.error.is_some())
    }

    /// Returns `index b: cannot index parallel arrays` for every failed build.
    pub(super) fn failures(&self) -> String {
        let describe = |index: &IndexInfo| {
            format!(
                "index {}: {}",
                index.definition.fields.join(","),
                index.error.as_deref().unwrap_or_default()
            )
        };
        self.failed().map(describe).collect::<Vec<_>>().join("; ")
    }

    /// Returns `2/2`, `1/2 (status 40%)` during a build, or `1/2 (status failed)` after it.
    pub(super) fn summary(&self) -> String {
        let ready = self.indexes.iter().filter(|index| index.ready).count();
        let mut summary = format!("{ready}/{}", self.indexes.len());
        if let Some(failed) = self.failed().next() {
            summary.push_str(&format!(" ({} failed)", failed.definition.fields.join(",")));
        } else if let Some(building) = self.indexes.iter().find(|index| !index.ready) {
            let percent = building.indexed * 100 / building.total.max(1);
            summary.push_str(&format!(" ({} {}%)", building.definition.fields.join(","), percent.min(100)));
        }
        summary
    }
}

/// Parses declared indexes: paths separated by commas, a leading minus for descending.
pub(super) fn definitions(declared: &[String]) -> Vec<IndexDefinition> {
    let definition = |index: &String| IndexDefinition {
        fields: index.split(',').map(|field| normalize(field.trim())).collect(),
        ..IndexDefinition::default()
    };
    declared.iter().map(definition).collect()
}

/// Writes a path as the server does, which knows no `[]`.
fn normalize(field: &str) -> String {
    field.split('.').filter(|component| *component != "[]").collect::<Vec<_>>().join(".")
}

/// Compares by fields and options; names do not matter.
pub(super) fn difference(desired: &[IndexDefinition], present: &[IndexInfo]) -> Difference {
    let same = |left: &IndexDefinition, right: &IndexDefinition| {
        left.fields == right.fields
            && (left.unique, left.sparse, left.expire_after_seconds)
                == (right.unique, right.sparse, right.expire_after_seconds)
    };
    let missing = desired.iter().filter(|index| !present.iter().any(|other| same(index, &other.definition)));
    let extra = present.iter().filter(|index| !desired.iter().any(|other| same(other, &index.definition)));
    Difference {
        missing: missing.cloned().collect(),
        extra: extra.map(|index| index.definition.name.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(fields: &[&str], ready: bool) -> IndexInfo {
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        let definition = IndexDefinition { name: fields.join("_"), fields, ..IndexDefinition::default() };
        IndexInfo { definition, ready, indexed: 40, total: 100, error: None }
    }

    #[test]
    fn missing_indexes_are_created_and_extra_ones_dropped() {
        let desired = definitions(&["status".to_owned(), "tags.[]".to_owned(), "a, -b".to_owned()]);
        let present = [present(&["tags"], true), present(&["score"], true), present(&["a", "-b"], true)];
        let difference = difference(&desired, &present);
        assert_eq!(difference.missing, [IndexDefinition::on("status")]);
        assert_eq!(difference.extra, ["score"]);
    }

    #[test]
    fn summary_names_the_index_being_built() {
        let progress =
            Progress { documents: 0, indexes: vec![present(&["a"], true), present(&["b"], false)] };
        assert_eq!(progress.summary(), "1/2 (b 40%)");
        assert!(!progress.is_ready() && progress.failed().next().is_none());
    }

    #[test]
    fn failed_builds_are_named_with_their_reason() {
        let failed = IndexInfo { error: Some("too large".to_owned()), ..present(&["b"], false) };
        let progress = Progress { documents: 0, indexes: vec![present(&["a"], true), failed] };
        assert_eq!(progress.summary(), "1/2 (b failed)");
        assert_eq!(progress.failures(), "index b: too large");
        // It is neither created again at once, nor dropped.
        let desired = definitions(&["a".to_owned(), "b".to_owned()]);
        assert_eq!(difference(&desired, &progress.indexes), Difference::default());
    }
}
