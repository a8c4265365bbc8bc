//! APIServices that the server registers for the group versions that it serves itself.

use serde_json::{Value, json};

use crate::{
    api_service::{ApiService, GROUP, MANAGED_LABEL, Managed, VERSION, name_of},
    priorities::{self, Priority},
};

/// An APIService that should exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Priorities.
    pub priority: Priority,
    /// Way in which it is kept.
    pub managed: Managed,
}

impl Desired {
    /// Returns the APIService of a built-in group version. Those without priorities get none, as in Kubernetes.
    pub fn builtin(group: &str, version: &str) -> Option<Self> {
        let priority = priorities::builtin(group, version)?;
        let (group, version) = (group.to_owned(), version.to_owned());
        Some(Self { group, version, priority, managed: Managed::OnStart })
    }

    /// Returns the APIService of a group version of CustomResourceDefinitions.
    pub fn custom(group: &str, version: &str) -> Self {
        let (group, version) = (group.to_owned(), version.to_owned());
        Self { group, version, priority: priorities::CUSTOM, managed: Managed::Always }
    }

    /// Returns its name.
    pub fn name(&self) -> String {
        name_of(&self.group, &self.version)
    }

    /// Returns the spec.
    pub fn spec(&self) -> Value {
        let mut spec = json!({
            "version": self.version, "groupPriorityMinimum": self.priority.group,
            "versionPriority": self.priority.version,
        });
        if !self.group.is_empty() {
            spec["group"] = self.group.clone().into();
        }
        spec
    }

    /// Returns the object.
    pub fn object(&self) -> Value {
        json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "APIService",
            "metadata": {"name": self.name(), "labels": {MANAGED_LABEL: self.managed.label()}},
            "spec": self.spec(),
        })
    }

    fn matches(&self, current: &ApiService) -> bool {
        current.backend.is_none()
            && (&current.group, &current.version) == (&self.group, &self.version)
            && (current.group_priority, current.version_priority)
                == (self.priority.group, self.priority.version)
    }
}

/// Facts about an APIService and this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// This process has synced it before.
    pub synced: bool,
    /// It existed when this process started.
    pub at_start: bool,
}

/// A change of an APIService.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing is to be done.
    Nothing,
    /// It is missing.
    Create,
    /// Its spec differs.
    Update,
    /// The server registered it and does not serve its group version any more.
    Delete,
}

/// Returns what to do about an APIService, as Kubernetes' autoregister controller decides:
///
/// | current \ desired | none | on start | always |
/// |---|---|---|---|
/// | none | - | create once | create |
/// | not managed | - | - | - |
/// | on start, not present at start | - | - | - |
/// | on start, present at start | delete once | update once | update once |
/// | always | delete | update once | update |
pub fn action(current: Option<&ApiService>, desired: Option<&Desired>, history: History) -> Action {
    if desired.is_some_and(|desired| desired.managed == Managed::OnStart) && history.synced {
        return Action::Nothing;
    }
    let Some(current) = current else {
        return if desired.is_some() { Action::Create } else { Action::Nothing };
    };
    match current.managed {
        Managed::No => return Action::Nothing,
        Managed::OnStart if !history.at_start || history.synced => return Action::Nothing,
        Managed::OnStart | Managed::Always => {}
    }
    match desired {
        None => Action::Delete,
        Some(desired) if desired.matches(current) => Action::Nothing,
        Some(_) => Action::Update,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(managed: Managed, version_priority: i64) -> ApiService {
        let mut object = Desired::custom("a.example", "v1").object();
        object["spec"]["versionPriority"] = version_priority.into();
        object["metadata"]["labels"][MANAGED_LABEL] = managed.label().into();
        ApiService::parse("v1.a.example", &object)
    }

    #[test]
    fn action_follows_the_table_of_the_autoregister_controller() {
        let always = Desired::custom("a.example", "v1");
        let on_start = Desired { managed: Managed::OnStart, ..always.clone() };
        let new = History::default();
        let synced = History { synced: true, at_start: true };
        let at_start = History { synced: false, at_start: true };
        let cases = [
            (None, None, new, Action::Nothing),
            (None, Some(&on_start), new, Action::Create),
            (None, Some(&on_start), synced, Action::Nothing),
            (None, Some(&always), new, Action::Create),
            (None, Some(&always), synced, Action::Create),
            (Some(current(Managed::No, 1)), Some(&always), at_start, Action::Nothing),
            (Some(current(Managed::No, 1)), None, at_start, Action::Nothing),
            (Some(current(Managed::OnStart, 1)), Some(&on_start), new, Action::Nothing),
            (Some(current(Managed::OnStart, 1)), None, at_start, Action::Delete),
            (Some(current(Managed::OnStart, 1)), None, synced, Action::Nothing),
            (Some(current(Managed::OnStart, 1)), Some(&on_start), at_start, Action::Update),
            (Some(current(Managed::OnStart, 100)), Some(&on_start), at_start, Action::Nothing),
            (Some(current(Managed::OnStart, 1)), Some(&always), synced, Action::Nothing),
            (Some(current(Managed::Always, 1)), None, synced, Action::Delete),
            (Some(current(Managed::Always, 1)), Some(&on_start), synced, Action::Nothing),
            (Some(current(Managed::Always, 1)), Some(&always), synced, Action::Update),
            (Some(current(Managed::Always, 100)), Some(&always), synced, Action::Nothing),
        ];
        for (current, desired, history, wanted) in cases {
            assert_eq!(
                action(current.as_ref(), desired, history),
                wanted,
                "{current:?} {desired:?} {history:?}"
            );
        }
    }

    #[test]
    fn core_group_is_named_without_a_group() {
        let core = Desired::builtin("", "v1").unwrap();
        assert_eq!(core.name(), "v1.");
        assert_eq!(core.spec().get("group"), None);
        assert_eq!(Desired::builtin("lamps.example", "v1"), None);
    }
}
