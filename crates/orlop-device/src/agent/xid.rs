//! What the driver's error numbers mean, and what to do about them.
//!
//! The driver reports trouble as an XID number. Some say that a program misbehaved, which is no fault of the
//! GPU; the others say what broke, and each has the action that the vendor advises.

/// What an operator should do, in increasing order of how much it disturbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    /// Reset the GPU.
    ComponentReset,
    /// Restart the machine.
    RestartMachine,
    /// Have it looked at.
    ContactSupport,
}

impl Action {
    /// The word that the status carries.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::ComponentReset => "COMPONENT_RESET",
            Self::RestartMachine => "RESTART_BM",
            Self::ContactSupport => "CONTACT_SUPPORT",
        }
    }

    /// Whether a word is one that this agent writes.
    pub(super) fn is_word(word: &str) -> bool {
        [Self::ComponentReset, Self::RestartMachine, Self::ContactSupport].iter().any(|a| a.word() == word)
    }
}

/// What a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    pub(super) text: &'static str,
    pub(super) action: Action,
    /// Whether the GPU cannot be used until something is done.
    pub(super) fatal: bool,
}

/// What an XID means for the GPU; `None` if it speaks of a program.
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
    fn programs_errors_are_not_the_gpus() {
        for xid in [13, 31, 43, 45] {
            assert_eq!(meaning(xid), None);
        }
        assert_eq!(meaning(79).map(|m| (m.action.word(), m.fatal)), Some(("RESTART_BM", true)));
        assert_eq!(meaning(9999).map(|m| m.action.word()), Some("CONTACT_SUPPORT"));
        assert!(Action::is_word("COMPONENT_RESET") && !Action::is_word("DRAIN"));
    }
}
