//! What each call means, once for all kinds.

mod change;
mod create;
mod delete;
mod patch;
mod read;
mod update;
mod watch;

/// A method of a kind's service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    UpdateStatus,
    Patch,
    Delete,
}

impl Verb {
    /// Finds the verb in a method's name.
    pub(crate) fn of(method: &str, noun: &str) -> Option<Self> {
        let rest = |verb: &str| method.strip_prefix(verb)?.strip_prefix(noun);
        let verbs = [
            ("Get", "", Self::Get),
            ("List", "s", Self::List),
            ("Watch", "s", Self::Watch),
            ("Create", "", Self::Create),
            ("Update", "", Self::Update),
            ("Update", "Status", Self::UpdateStatus),
            ("Patch", "", Self::Patch),
            ("Delete", "", Self::Delete),
        ];
        verbs.into_iter().find(|(verb, end, _)| rest(verb) == Some(end)).map(|(_, _, verb)| verb)
    }

    /// Whether it changes anything.
    pub(crate) fn writes(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_known_by_their_names() {
        assert_eq!(Verb::of("ListGpus", "Gpu"), Some(Verb::List));
        assert_eq!(Verb::of("UpdateGpu", "Gpu"), Some(Verb::Update));
        assert_eq!(Verb::of("UpdateGpuStatus", "Gpu"), Some(Verb::UpdateStatus));
        for unknown in ["GetGpus", "ListGpu", "Get", "", "GetNic", "UpdateGpuStatuses"] {
            assert_eq!(Verb::of(unknown, "Gpu"), None, "{unknown}");
        }
    }
}
