//! Conflicts of an apply with other field managers.

use crate::managed_fields::{Manager, Path};
use crate::status::{Cause, Status};

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub manager: Manager,
    pub path: Path,
}

/// Returns the 409 of an apply: one conflict on a line, several grouped by manager.
pub fn conflict_status(conflicts: &[Conflict]) -> Status {
    let causes = conflicts.iter().map(|conflict| Cause {
        reason: "FieldManagerConflict".to_owned(),
        message: format!("conflict with {}", conflict.manager),
        field: conflict.path.to_string(),
    });
    Status::apply_conflict(causes.collect(), message(conflicts))
}

fn message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.path);
    }
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in conflicts {
        if last != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager));
            last = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.path));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
