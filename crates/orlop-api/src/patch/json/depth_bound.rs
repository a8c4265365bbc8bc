//! Bound on the depth of a document while a patch is applied.

use crate::decode;
use crate::patch::PatchError;
use serde_json::Value;

/// Nodes that depth checks of one patch may visit.
const MEASURED_NODES_MAX: usize = 10_000_000;

/// Depth of a value that an operation inserted, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Inserted {
    Nothing,
    /// A value of this depth below a path of this length.
    At {
        path: usize,
        depth: usize,
    },
    /// A subtree of the document, moved between paths of these lengths.
    Moved {
        from: usize,
        path: usize,
    },
}

/// Upper bound of the document's depth while a patch is applied.
///
/// Operations nest what earlier ones nested, and everything that walks a document relies on its depth limit. Measuring
/// the document after each operation is quadratic, so each operation raises a bound, and the document is measured only
/// where the bound exceeds the limit.
pub(super) struct DepthBound {
    bound: usize,
    /// Nodes that measuring may still visit.
    nodes_left: usize,
}

impl DepthBound {
    pub(super) fn of(document: &Value) -> Self {
        Self { bound: decode::depth(document), nodes_left: MEASURED_NODES_MAX }
    }

    pub(super) fn insert(&mut self, inserted: Inserted, document: &Value) -> Result<(), PatchError> {
        let depth = match inserted {
            Inserted::Nothing => return Ok(()),
            Inserted::At { path, depth } => path + depth,
            Inserted::Moved { from, path } => path + self.bound.saturating_sub(from),
        };
        self.bound = self.bound.max(depth);
        if self.bound > decode::DEPTH_MAX {
            let nodes = decode::count_nodes(document, self.nodes_left).ok_or_else(|| {
                PatchError::DoesNotApply("Unable to complete the patch: it nests too many values".to_owned())
            })?;
            self.nodes_left -= nodes;
            decode::check_depth(document)?;
            self.bound = decode::depth(document);
        }
        Ok(())
    }
}
