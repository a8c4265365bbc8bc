//! XID errors: meaning and recommended action.
//!
//! The driver reports errors as XID numbers. Some are errors of an application; each of the others has the action that the
//! vendor recommends.

/// Recommended action, in increasing order of disruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// Reset the GPU.
    ComponentReset,
    /// Restart the machine.
    RestartMachine,
    /// Contact the vendor's support.
    ContactSupport,
}

impl Action {
    /// Returns the value in the status.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::ComponentReset => "COMPONENT_RESET",
            Self::RestartMachine => "RESTART_BM",
            Self::ContactSupport => "CONTACT_SUPPORT",
        }
    }

    /// Returns `true` for a value that this agent writes.
    pub(super) fn is_known(value: &str) -> bool {
        [Self::ComponentReset, Self::RestartMachine, Self::ContactSupport]
            .iter()
            .any(|action| action.as_str() == value)
    }
}

/// Meaning of an XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) text: &'static str,
    pub(super) action: Action,
    /// The GPU is unusable until the action is taken.
    pub(super) fatal: bool,
}

/// Returns the meaning of an XID. `None` for an error of an application.
pub(super) fn meaning(xid: u64) -> Option<Meaning> {
    use Action::{ComponentReset, ContactSupport, RestartMachine};
    let (text, action, fatal) = match xid {
        8 | 13 | 31 | 43 | 45 => return None,
        48 => ("double-bit memory error", ComponentReset, true),
        62 => ("the microcontroller halted", ComponentReset, true),
        63 => ("a memory row was remapped", ComponentReset, false),
        64 => ("a memory row could not be remapped", ContactSupport, true),
        74 => ("NVLink error", ComponentReset, true),
        79 => ("the GPU has fallen off the bus", RestartMachine, true),
        92 => ("high rate of single-bit memory errors", ContactSupport, false),
        94 => ("contained memory error", ComponentReset, false),
        95 => ("uncontained memory error", ComponentReset, true),
        119 => ("the system processor timed out", ComponentReset, true),
        120 => ("the system processor failed", ComponentReset, true),
        140 => ("unrecovered memory error", ComponentReset, true),
        _ => ("unrecognized error", ContactSupport, false),
    };
    Some(Meaning { text, action, fatal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn application_errors_are_ignored() {
        for xid in [13, 31, 43, 45] {
            assert_eq!(meaning(xid), None);
        }
        assert_eq!(meaning(79).map(|m| (m.action.as_str(), m.fatal)), Some(("RESTART_BM", true)));
        assert_eq!(meaning(9999).map(|m| m.action.as_str()), Some("CONTACT_SUPPORT"));
        assert!(Action::is_known("COMPONENT_RESET") && !Action::is_known("DRAIN"));
    }
}
