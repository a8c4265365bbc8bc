//! Priority: resolves the priority class of pods, and allows one default class.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::status::Status;
use orlop_kinds::accessors::{flag, integer, present, text};
use serde_json::Value;

use super::pods::spec_mut;
use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    listers::{Listers, PRIORITY_CLASSES, Snapshot},
};

const PREEMPT_LOWER_PRIORITY: &str = "PreemptLowerPriority";

/// Resolves priority classes.
#[derive(Debug)]
pub(super) struct Priority {
    listers: Arc<dyn Listers>,
}

/// The class of a pod.
struct Class {
    name: String,
    value: i64,
    preemption_policy: Option<String>,
}

impl Class {
    fn of(object: &Value) -> Self {
        let policy = present(object, "/preemptionPolicy").and_then(Value::as_str).map(str::to_owned);
        Self {
            name: text(object, "/metadata/name").to_owned(),
            value: integer(object, "/value"),
            preemption_policy: policy,
        }
    }
}

impl Priority {
    pub(super) fn new(listers: Arc<dyn Listers>) -> Self {
        Self { listers }
    }

    /// Returns the class that a pod names, or the default one.
    async fn class(&self, request: &AdmissionRequest<'_>, object: &Value) -> Result<Class, Status> {
        let classes = self.listers.list(PRIORITY_CLASSES).await?;
        let name = text(object, "/spec/priorityClassName");
        if name.is_empty() {
            return Ok(default_class(&classes).map_or_else(
                || Class {
                    name: String::new(),
                    value: 0,
                    preemption_policy: Some(PREEMPT_LOWER_PRIORITY.to_owned()),
                },
                |class| Class::of(class),
            ));
        }
        match classes.get("", name) {
            Some(class) => Ok(Class::of(class)),
            None => Err(request.forbidden(object, format!("no PriorityClass with name {name} was found"))),
        }
    }

    async fn resolve(&self, request: &AdmissionRequest<'_>, object: &mut Value) -> Result<(), Status> {
        let class = self.class(request, object).await?;
        let is_pod = request.attributes.resource == "pods";
        if let Some(given) = present(object, "/spec/priority").and_then(Value::as_i64)
            && given != class.value
        {
            let (computed, group) = (class.value, group_name(request));
            return Err(request.forbidden(
                object,
                match is_pod {
                    true => format!(
                        "the integer value of priority ({given}) must not be provided in pod spec; priority admission \
                         controller computed {computed} from the given PriorityClass name"
                    ),
                    false => format!(
                        "priority set in the {group} ({given}) must match the priority computed ({computed}) based on \
                         the priority class set in the spec"
                    ),
                },
            ));
        }
        let given = text(object, "/spec/preemptionPolicy").to_owned();
        if let Some(computed) = &class.preemption_policy
            && !given.is_empty()
            && given != *computed
        {
            let group = group_name(request);
            return Err(request.forbidden(
                object,
                format!(
                    "the string value of PreemptionPolicy ({given}) must not be provided in {group} spec; priority \
                     admission controller computed {computed} from the given PriorityClass name"
                ),
            ));
        }
        let spec = spec_mut(object);
        if !class.name.is_empty() {
            spec.insert("priorityClassName".into(), class.name.into());
        }
        spec.insert("priority".into(), class.value.into());
        if let Some(policy) = class.preemption_policy {
            spec.insert("preemptionPolicy".into(), policy.into());
        }
        Ok(())
    }
}

fn group_name(request: &AdmissionRequest<'_>) -> &'static str {
    match request.attributes.resource.as_str() {
        "podgroups" => "pod group",
        "compositepodgroups" => "composite pod group",
        _ => "pod",
    }
}

/// Returns the default class; of several, which a race can make, the one with the lowest value.
fn default_class(classes: &Snapshot) -> Option<&Arc<Value>> {
    classes.iter().filter(|class| flag(class, "/globalDefault")).min_by_key(|class| integer(class, "/value"))
}

#[async_trait]
impl Admission for Priority {
    fn resources(&self) -> Resources {
        Resources::Only(&[
            ("", "pods"),
            ("scheduling.k8s.io", "podgroups"),
            ("scheduling.k8s.io", "compositepodgroups"),
            ("scheduling.k8s.io", "priorityclasses"),
        ])
    }

    fn handles(&self, _phase: Phase, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if !request.subresource().is_empty() || request.attributes.resource == "priorityclasses" {
            return Ok(());
        }
        let Some(old) = old else { return self.resolve(request, object).await };
        // Clients that do not know the fields leave them out of an update.
        if request.attributes.resource == "pods" {
            for field in ["priority", "preemptionPolicy"] {
                let (new, old) =
                    (object.pointer(&format!("/spec/{field}")), old.pointer(&format!("/spec/{field}")));
                if let (None | Some(Value::Null), Some(old)) = (new, old) {
                    let old = old.clone();
                    spec_mut(object).insert(field.to_owned(), old);
                }
            }
        }
        Ok(())
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(object) = object.filter(|class| flag(class, "/globalDefault")) else { return Ok(()) };
        if request.attributes.resource != "priorityclasses" || !request.subresource().is_empty() {
            return Ok(());
        }
        let classes = self.listers.list(PRIORITY_CLASSES).await?;
        let Some(default) = default_class(&classes).map(|class| text(class, "/metadata/name")) else {
            return Ok(());
        };
        if request.operation == Operation::Update && default == text(object, "/metadata/name") {
            return Ok(());
        }
        let why = format!("PriorityClass {default} is already marked as default. Only one default can exist");
        Err(request.forbidden(object, why))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::testing::{FakeListers, Run, message};

    fn class(name: &str, value: i64, default: bool) -> Value {
        json!({"metadata": {"name": name}, "value": value, "globalDefault": default,
            "preemptionPolicy": if value < 100 { "Never" } else { "PreemptLowerPriority" }})
    }

    fn plugin(classes: &[Value]) -> Priority {
        let listers = FakeListers::default();
        classes.iter().for_each(|class| listers.add(PRIORITY_CLASSES, "", class.clone()));
        Priority::new(Arc::new(listers))
    }

    async fn created(plugin: &Priority, spec: Value) -> Result<Value, Status> {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec});
        Ok(Run::create("", "pods").mutate(plugin, pod).await?["spec"].clone())
    }

    #[tokio::test]
    async fn class_sets_priority_and_preemption_policy() {
        let plugin = plugin(&[class("high", 1000, false), class("low", 1, false)]);
        assert_eq!(
            created(&plugin, json!({"priorityClassName": "high"})).await.unwrap(),
            json!({"priorityClassName": "high", "priority": 1000, "preemptionPolicy": "PreemptLowerPriority"})
        );
        assert_eq!(
            created(&plugin, json!({})).await.unwrap(),
            json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"})
        );
    }

    #[tokio::test]
    async fn default_class_of_several_is_the_lowest() {
        let plugin = plugin(&[class("a", 30, true), class("b", 20, true)]);
        assert_eq!(
            created(&plugin, json!({})).await.unwrap(),
            json!({"priorityClassName": "b", "priority": 20, "preemptionPolicy": "Never"})
        );
    }

    #[tokio::test]
    async fn unknown_class_and_other_values_are_forbidden() {
        let plugin = plugin(&[class("high", 1000, false)]);
        assert_eq!(
            message(created(&plugin, json!({"priorityClassName": "x"})).await),
            "pods \"p\" is forbidden: no PriorityClass with name x was found"
        );
        assert_eq!(
            message(created(&plugin, json!({"priorityClassName": "high", "priority": 7})).await),
            "pods \"p\" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority \
             admission controller computed 1000 from the given PriorityClass name"
        );
        assert_eq!(
            message(
                created(&plugin, json!({"priorityClassName": "high", "preemptionPolicy": "Never"})).await
            ),
            "pods \"p\" is forbidden: the string value of PreemptionPolicy (Never) must not be provided in pod spec; \
             priority admission controller computed PreemptLowerPriority from the given PriorityClass name"
        );
    }

    #[tokio::test]
    async fn update_without_a_priority_keeps_it() {
        let old = json!({"spec": {"priority": 7, "preemptionPolicy": "Never"}});
        let run = Run::update("", "pods", old.clone());
        assert_eq!(run.mutate(&plugin(&[]), json!({"spec": {}})).await.unwrap(), old);
    }

    #[tokio::test]
    async fn only_one_class_is_the_default() {
        let plugin = plugin(&[class("a", 1, true)]);
        let run = Run::create("scheduling.k8s.io", "priorityclasses");
        assert_eq!(
            message(run.mutate(&plugin, class("b", 2, true)).await),
            "priorityclasses.scheduling.k8s.io \"b\" is forbidden: PriorityClass a is already marked as default. Only \
             one default can exist"
        );
        let update = Run::update("scheduling.k8s.io", "priorityclasses", class("a", 1, true));
        update.mutate(&plugin, class("a", 1, true)).await.unwrap();
    }
}
