//! Bindings by subject and namespace.
//!
//! [`Index`] is an immutable snapshot: a clone is a few pointers, and a decision reads one without a lock. The one
//! [`IndexWriter`] makes the next snapshot from the last; they share all that did not change. Roles with equal rules
//! share them.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    sync::Arc,
};

use orlop_api::{field_error::aggregate, go_text::quote, user::UserInfo};
use serde_json::Value;

use super::{
    Binding, GROUP, PolicyRule, RoleRef, Subject,
    objects::SERVICE_ACCOUNT,
    rule_set::{BloomFilter, RuleSet},
};
use crate::{
    authorizer::{Decision, PathRule, ResourceRule, Rules},
    request::Attributes,
};

/// A decision looks up a dozen keys: the standard library's hash is most of that.
type Map<T> =
    imbl::GenericHashMap<Box<str>, T, foldhash::quality::RandomState, imbl::shared_ptr::DefaultSharedPtr>;

/// A snapshot of all roles and bindings.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Rules by [`object_key`].
    roles: Map<Arc<RuleSet>>,
    /// Bindings by [`subject_key`], in order of their names.
    bindings: Map<Arc<[Arc<Binding>]>>,
}

/// A role that a binding names and that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRole(String);

impl std::fmt::Display for MissingRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Index {
    /// Decides about a request. RBAC never denies: another authorizer may allow what no rule does.
    pub fn authorize(&self, attributes: &Attributes) -> Decision {
        let mut missing = Vec::new();
        let wanted = BloomFilter::of_request(attributes);
        let namespace = if attributes.is_resource_request { attributes.namespace.as_str() } else { "" };
        let allowed = self.visit(&attributes.user, namespace, |binding, rules| match rules {
            Ok(rules) if rules.allow(attributes, wanted) => ControlFlow::Break(binding),
            Ok(_) => ControlFlow::Continue(()),
            Err(error) => {
                missing.push(error);
                ControlFlow::Continue(())
            }
        });
        match allowed {
            Some(binding) => {
                let mut reason = String::with_capacity(128);
                reason.push_str("RBAC: allowed by ");
                binding.describe(&attributes.user, &mut reason);
                Decision::Allow(reason.into())
            }
            None if missing.is_empty() => Decision::NoOpinion("".into()),
            None => Decision::NoOpinion(format!("RBAC: {}", aggregate(&missing)).into()),
        }
    }

    /// Returns the rules that apply to a user in a namespace, and the error of roles that do not exist.
    pub fn rules_for(&self, user: &UserInfo, namespace: &str) -> (Vec<PolicyRule>, Option<String>) {
        let mut applying: Vec<(&Arc<Binding>, Vec<PolicyRule>)> = Vec::new();
        let mut missing = Vec::new();
        let mut seen = HashSet::new();
        self.visit(user, namespace, |binding, rules| {
            // A binding may apply by several subjects.
            if seen.insert(Arc::as_ptr(binding)) {
                match rules {
                    Ok(rules) => applying.push((binding, rules.rules().to_vec())),
                    Err(error) => missing.push(error),
                }
            }
            ControlFlow::<()>::Continue(())
        });
        applying.sort_by(|(one, _), (other, _)| {
            (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name))
        });
        let rules = applying.into_iter().flat_map(|(_, rules)| rules).collect();
        (rules, (!missing.is_empty()).then(|| aggregate(&missing)))
    }

    /// Returns the rules of a user in a namespace for SelfSubjectRulesReview.
    pub fn review(&self, user: &UserInfo, namespace: &str) -> Rules {
        let (rules, error) = self.rules_for(user, namespace);
        let texts = |values: &[Box<str>]| values.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut review = Rules { errors: error.into_iter().collect(), ..Rules::default() };
        for rule in &rules {
            if !rule.resources.is_empty() {
                review.resources.push(ResourceRule {
                    verbs: texts(&rule.verbs),
                    groups: texts(&rule.api_groups),
                    resources: texts(&rule.resources),
                    names: texts(&rule.resource_names),
                });
            }
            if !rule.non_resource_urls.is_empty() {
                let paths = texts(&rule.non_resource_urls);
                review.paths.push(PathRule { verbs: texts(&rule.verbs), paths });
            }
        }
        review
    }

    /// Returns the rules of a role that a binding in a namespace grants; the namespace is empty for a
    /// ClusterRoleBinding.
    pub fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<&Arc<RuleSet>, MissingRole> {
        self.rules_by(&mut String::new(), role, namespace)
    }

    /// Returns the rules of a role, with a buffer for its key: a decision looks up several.
    fn rules_by(
        &self,
        key: &mut String,
        role: &RoleRef,
        namespace: &str,
    ) -> Result<&Arc<RuleSet>, MissingRole> {
        let (resource, namespace) = match &*role.kind {
            "ClusterRole" => ("clusterrole", ""),
            "Role" => ("role", namespace),
            other => return Err(MissingRole(format!("unsupported role reference kind: {}", quote(other)))),
        };
        let missing = || MissingRole(format!("{resource}.{GROUP} {} not found", quote(&role.name)));
        write_object_key(key, namespace, &role.name);
        self.roles.get(key.as_str()).ok_or_else(missing)
    }

    /// Visits the bindings of a user with the rules they grant: those of the cluster, then those of the namespace.
    fn visit<'a, T>(
        &'a self,
        user: &UserInfo,
        namespace: &str,
        mut visitor: impl FnMut(&'a Arc<Binding>, Result<&'a RuleSet, MissingRole>) -> ControlFlow<T>,
    ) -> Option<T> {
        let (mut key, mut role_key) = (String::with_capacity(64), String::with_capacity(64));
        let scopes = [Some(""), Some(namespace).filter(|namespace| !namespace.is_empty())];
        for scope in scopes.into_iter().flatten() {
            let users = std::iter::once((Sort::User, user.name.as_str()));
            let groups = user.groups.iter().map(|group| (Sort::Group, group.as_str()));
            for (sort, name) in users.chain(groups) {
                write_subject_key(&mut key, scope, sort, name);
                for binding in
                    self.bindings.get(key.as_str()).into_iter().flat_map(|bindings| bindings.iter())
                {
                    let rules = self.rules_by(&mut role_key, &binding.role, scope).map(|rules| &**rules);
                    if let ControlFlow::Break(value) = visitor(binding, rules) {
                        return Some(value);
                    }
                }
            }
        }
        None
    }
}

/// A user or a group.
#[derive(Clone, Copy)]
enum Sort {
    User,
    Group,
}

/// Writes the key of a subject.
fn write_subject_key(key: &mut String, namespace: &str, sort: Sort, name: &str) {
    write_scope(key, namespace);
    key.push(match sort {
        Sort::User => 'u',
        Sort::Group => 'g',
    });
    key.push_str(name);
}

fn write_object_key(key: &mut String, namespace: &str, name: &str) {
    write_scope(key, namespace);
    key.push_str(name);
}

fn object_key(namespace: &str, name: &str) -> String {
    let mut key = String::with_capacity(namespace.len() + name.len() + 1);
    write_object_key(&mut key, namespace, name);
    key
}

/// Starts a key with its namespace. The length of the namespace keeps keys of different parts apart.
fn write_scope(key: &mut String, namespace: &str) {
    key.clear();
    // No binding is in a namespace whose length is no character.
    let length = u32::try_from(namespace.len()).ok().and_then(char::from_u32);
    key.push(length.unwrap_or(char::MAX));
    key.push_str(namespace);
}

/// A sort of RBAC object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A Role or ClusterRole.
    Role,
    /// A RoleBinding or ClusterRoleBinding.
    Binding,
}

/// A change of an RBAC object.
#[derive(Debug)]
pub struct Change<'a> {
    /// The sort of object.
    pub target: Target,
    /// Namespace; empty for a ClusterRole or ClusterRoleBinding.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// The object; `None` if it was removed.
    pub object: Option<&'a Value>,
}

/// Makes snapshots of the index.
#[derive(Debug, Default)]
pub struct IndexWriter {
    index: Index,
    /// Present bindings by [`object_key`]: a changed binding is removed from its old subjects.
    present: HashMap<Box<str>, Arc<Binding>>,
    /// Distinct lists of rules, and the number of roles that share each.
    rules: HashMap<Arc<RuleSet>, usize>,
}

impl IndexWriter {
    /// Returns the current snapshot.
    pub fn snapshot(&self) -> Index {
        self.index.clone()
    }

    /// Applies a change.
    pub fn apply(&mut self, change: &Change<'_>) {
        let key = object_key(change.namespace, change.name);
        match change.target {
            Target::Role => {
                let before = match change.object {
                    Some(role) => {
                        let rules = self.share(PolicyRule::all_of(role));
                        self.index.roles.insert(key.into(), rules)
                    }
                    None => self.index.roles.remove(key.as_str()),
                };
                if let Some(before) = before {
                    self.release(&before);
                }
            }
            Target::Binding => {
                if let Some(old) = self.present.remove(key.as_str()) {
                    self.unbind(&old);
                }
                if let Some(binding) = change.object {
                    let binding = Arc::new(Binding::of(binding));
                    self.bind(&binding);
                    self.present.insert(key.into(), binding);
                }
            }
        }
    }

    /// Returns the shared copy of a list of rules.
    fn share(&mut self, rules: Vec<PolicyRule>) -> Arc<RuleSet> {
        let rules = RuleSet::new(rules);
        let shared = match self.rules.get_key_value(&rules) {
            Some((shared, _)) => shared.clone(),
            None => rules.into(),
        };
        *self.rules.entry(shared.clone()).or_default() += 1;
        shared
    }

    /// Forgets a list of rules with the last role that has it.
    fn release(&mut self, rules: &Arc<RuleSet>) {
        if let Some(count) = self.rules.get_mut(rules) {
            *count -= 1;
            if *count == 0 {
                self.rules.remove(rules);
            }
        }
    }

    fn bind(&mut self, binding: &Arc<Binding>) {
        for key in subject_keys(binding) {
            let others = self.index.bindings.get(key.as_str());
            let mut all: Vec<Arc<Binding>> = others.map(|others| others.to_vec()).unwrap_or_default();
            let at = all.partition_point(|other| other.name < binding.name);
            all.insert(at, binding.clone());
            self.index.bindings.insert(key.into(), all.into());
        }
    }

    fn unbind(&mut self, binding: &Arc<Binding>) {
        for key in subject_keys(binding) {
            let Some(all) = self.index.bindings.get(key.as_str()) else { continue };
            let rest: Vec<_> = all.iter().filter(|other| !Arc::ptr_eq(other, binding)).cloned().collect();
            if rest.is_empty() {
                self.index.bindings.remove(key.as_str());
            } else {
                self.index.bindings.insert(key.into(), rest.into());
            }
        }
    }
}

/// Returns the distinct keys of a binding's subjects.
fn subject_keys(binding: &Binding) -> HashSet<String> {
    let key = |subject: &Subject| {
        let mut key = String::new();
        match subject {
            Subject::User(name) => write_subject_key(&mut key, &binding.namespace, Sort::User, name),
            Subject::Group(name) => write_subject_key(&mut key, &binding.namespace, Sort::Group, name),
            Subject::ServiceAccount { namespace, name } => {
                let user = format!("{SERVICE_ACCOUNT}{namespace}:{name}");
                write_subject_key(&mut key, &binding.namespace, Sort::User, &user);
            }
        }
        key
    };
    binding.subjects.iter().map(key).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::request::Subresource;

    /// All objects, searched from first to last: Kubernetes' algorithm in its plainest form.
    #[derive(Default)]
    struct Model(BTreeMap<(u8, String, String), Value>);

    impl Model {
        fn allows(&self, attributes: &Attributes) -> bool {
            let bindings = self.0.iter().filter(|((target, ..), _)| *target == 1);
            bindings.map(|((_, namespace, _), binding)| (namespace, binding)).any(|(namespace, binding)| {
                let in_scope = namespace.is_empty()
                    || (attributes.is_resource_request && *namespace == attributes.namespace);
                let subjects = binding["subjects"].as_array().into_iter().flatten();
                let applies = subjects.into_iter().any(|subject| {
                    let (kind, name) =
                        (subject["kind"].as_str(), subject["name"].as_str().unwrap_or_default());
                    match kind {
                        Some("User") => attributes.user.name == name,
                        Some("Group") => attributes.user.groups.iter().any(|group| group == name),
                        _ => {
                            let of = subject["namespace"].as_str().unwrap_or(namespace);
                            attributes.user.name == format!("system:serviceaccount:{of}:{name}")
                        }
                    }
                });
                let role_namespace =
                    if binding["roleRef"]["kind"] == "Role" { namespace.as_str() } else { "" };
                let role = binding["roleRef"]["name"].as_str().unwrap_or_default();
                let role = self.0.get(&(0, role_namespace.to_owned(), role.to_owned()));
                let rules = role.and_then(|role| role["rules"].as_array()).into_iter().flatten();
                in_scope
                    && applies
                    && rules.into_iter().any(|rule| {
                        let has = |field: &str, wanted: &str| {
                            let values = rule[field].as_array().into_iter().flatten();
                            values.into_iter().any(|value| value == "*" || value == wanted)
                        };
                        let subresource = attributes.subresource_name();
                        let is_matched = match subresource {
                            "" => has("resources", &attributes.resource),
                            _ => [attributes.resource.as_str(), "*"]
                                .iter()
                                .any(|resource| has("resources", &format!("{resource}/{subresource}"))),
                        };
                        has("verbs", attributes.verb.as_str())
                            && has("apiGroups", &attributes.group)
                            && is_matched
                    })
            })
        }
    }

    fn small_name() -> impl Strategy<Value = String> {
        proptest::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned)
    }

    fn namespace() -> impl Strategy<Value = String> {
        proptest::sample::select(vec!["", "m", "n"]).prop_map(str::to_owned)
    }

    fn role() -> impl Strategy<Value = Value> {
        let word = |words: &'static [&'static str]| proptest::sample::subsequence(words, 0..=2);
        let resources = word(&["pods", "secrets", "*", "pods/log", "*/log"]);
        let rule = (word(&["get", "list", "*"]), word(&["", "apps", "*"]), resources);
        proptest::collection::vec(rule, 0..3).prop_map(|rules| {
            let rules = rules.into_iter();
            let rules = rules
                .map(|(verbs, groups, resources)| json!({"verbs": verbs, "apiGroups": groups, "resources": resources}));
            json!({"rules": rules.collect::<Vec<_>>()})
        })
    }

    fn subject() -> impl Strategy<Value = Value> {
        let kind = proptest::sample::select(vec!["User", "Group", "ServiceAccount"]);
        (kind, small_name()).prop_map(|(kind, name)| match kind {
            "ServiceAccount" => json!({"kind": kind, "name": name, "namespace": "m"}),
            _ => json!({"kind": kind, "name": name}),
        })
    }

    /// A target (0 for a role), namespace, name, and the object or `None` for a removal.
    type Step = (u8, String, String, Option<Value>);

    fn step() -> impl Strategy<Value = Step> {
        let a_role = (namespace(), small_name(), proptest::option::weighted(0.8, role()))
            .prop_map(|(namespace, name, role)| (0, namespace, name, role));
        let kind = proptest::sample::select(vec!["Role", "ClusterRole"]);
        let subjects = proptest::collection::vec(subject(), 0..3);
        let binding = (kind, small_name(), subjects);
        let a_binding = (namespace(), small_name(), proptest::option::weighted(0.8, binding)).prop_map(
            |(namespace, name, binding)| {
                let binding = binding.map(|(kind, role, subjects)| {
                    json!({"metadata": {"name": name, "namespace": namespace},
                        "roleRef": {"kind": kind, "name": role}, "subjects": subjects})
                });
                (1, namespace, name, binding)
            },
        );
        prop_oneof![a_role, a_binding]
    }

    fn requests() -> Vec<Attributes> {
        let users = [
            UserInfo::authenticated("a", []),
            UserInfo::authenticated("z", ["b".to_owned(), "c".to_owned()]),
            UserInfo::service_account("m", "a"),
        ];
        let mut requests = Vec::new();
        for user in users.map(Arc::new) {
            for namespace in ["", "m", "n", "o"] {
                for (verb, group, resource, subresource) in [
                    ("get", "", "pods", None),
                    ("list", "apps", "secrets", None),
                    ("watch", "", "pods", None),
                    ("get", "", "pods", Some("log")),
                    ("get", "", "secrets", Some("log")),
                ] {
                    requests.push(Attributes {
                        user: user.clone(),
                        verb: verb.into(),
                        is_resource_request: true,
                        group: group.into(),
                        resource: resource.into(),
                        subresource: subresource.map(Subresource::from),
                        namespace: namespace.into(),
                        ..Attributes::default()
                    });
                }
            }
        }
        requests
    }

    proptest! {
        #[test]
        fn decisions_equal_those_of_a_plain_search(steps in proptest::collection::vec(step(), 0..60)) {
            let (mut model, mut writer) = (Model::default(), IndexWriter::default());
            for (target, namespace, name, object) in steps {
                let sort = if target == 0 { Target::Role } else { Target::Binding };
                let change = Change { target: sort, namespace: &namespace, name: &name, object: object.as_ref() };
                writer.apply(&change);
                let key = (target, namespace.clone(), name.clone());
                match object {
                    Some(object) => model.0.insert(key, object),
                    None => model.0.remove(&key),
                };
            }
            let index = writer.snapshot();
            for request in requests() {
                let allowed = matches!(index.authorize(&request), Decision::Allow(_));
                prop_assert_eq!(allowed, model.allows(&request), "{:?}", request);
                // The rules of a user allow the same.
                let (rules, _) = index.rules_for(&request.user, &request.namespace);
                prop_assert_eq!(rules.iter().any(|rule| rule.allows(&request)), allowed);
            }
        }

        #[test]
        fn removing_everything_leaves_nothing(steps in proptest::collection::vec(step(), 0..60)) {
            let mut writer = IndexWriter::default();
            for remove in [false, true] {
                for (target, namespace, name, object) in &steps {
                    let target = if *target == 0 { Target::Role } else { Target::Binding };
                    let object = object.as_ref().filter(|_| !remove);
                    writer.apply(&Change { target, namespace, name, object });
                }
            }
            prop_assert!(writer.index.roles.is_empty() && writer.index.bindings.is_empty());
            prop_assert!(writer.present.is_empty() && writer.rules.is_empty());
        }
    }

    #[test]
    fn reasons_match_kubernetes() {
        let mut writer = IndexWriter::default();
        let mut apply = |target, namespace: &str, name: &str, object: Value| {
            writer.apply(&Change { target, namespace, name, object: Some(&object) });
        };
        let rules = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
        apply(Target::Role, "", "reader", rules);
        let binding = |name: &str, namespace: &str, role: &str| {
            json!({"metadata": {"name": name, "namespace": namespace}, "roleRef": {"kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "User", "name": "ann"}]})
        };
        apply(Target::Binding, "", "gone", binding("gone", "", "gone"));
        apply(Target::Binding, "n", "b", binding("b", "n", "reader"));
        let index = writer.snapshot();
        let ask = |namespace: &str| {
            index.authorize(&Attributes {
                user: Arc::new(UserInfo::authenticated("ann", [])),
                is_resource_request: true,
                resource: "pods".into(),
                namespace: namespace.into(),
                ..Attributes::default()
            })
        };
        let allowed = r#"RBAC: allowed by RoleBinding "b/n" of ClusterRole "reader" to User "ann""#;
        assert_eq!(ask("n"), Decision::Allow(allowed.into()));
        let refused = r#"RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found"#;
        assert_eq!(ask("m"), Decision::NoOpinion(refused.into()));
        // The namespace of a review is any text: it must not reach into another one.
        assert_eq!(ask("1:nuann"), Decision::NoOpinion(refused.into()));
    }

    #[test]
    fn equal_rules_are_shared() {
        let mut writer = IndexWriter::default();
        let role = json!({"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
        for name in ["a", "b", "c"] {
            writer.apply(&Change { target: Target::Role, namespace: "n", name, object: Some(&role) });
        }
        assert_eq!(writer.rules.len(), 1);
        let reference = |name: &str| RoleRef { kind: "Role".into(), name: name.into() };
        let index = writer.snapshot();
        let rules = |name: &str| index.rules_of(&reference(name), "n").ok().map(Arc::as_ptr);
        assert_eq!(rules("a"), rules("b"));
        assert!(rules("a").is_some() && rules("d").is_none());
    }
}
