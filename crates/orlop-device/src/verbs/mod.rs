//! The verbs, implemented once for all kinds.

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
    /// Parses the verb of a method's name.
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

    /// Returns `true` for verbs that write.
    pub(crate) fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verb_is_parsed_from_the_method_name() {
        assert_eq!(Verb::of("ListGpus", "Gpu"), Some(Verb::List));
        assert_eq!(Verb::of("UpdateGpu", "Gpu"), Some(Verb::Update));
        assert_eq!(Verb::of("UpdateGpuStatus", "Gpu"), Some(Verb::UpdateStatus));
        for unknown in ["GetGpus", "ListGpu", "Get", "", "GetNic", "UpdateGpuStatuses"] {
            assert_eq!(Verb::of(unknown, "Gpu"), None, "{unknown}");
        }
    }
}
