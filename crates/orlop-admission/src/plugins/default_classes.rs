//! DefaultStorageClass and DefaultIngressClass: give claims and ingresses the default class of the cluster.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::status::Status;
use orlop_kinds::accessors::{annotation, map, present, text};
use serde_json::Value;

use super::pods::spec_mut;
use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    listers::{INGRESS_CLASSES, Listers, Resource, STORAGE_CLASSES, Snapshot},
};

/// Gives objects of a resource the default class.
#[derive(Debug)]
pub(super) struct DefaultClass {
    listers: Arc<dyn Listers>,
    /// Resource whose objects have a class.
    resource: &'static [(&'static str, &'static str)],
    classes: Resource<'static>,
    /// Field of the spec that names the class.
    field: &'static str,
    /// Annotations of objects that named the class before there was a field.
    legacy: &'static str,
    /// Annotations that mark the default class.
    markers: &'static [&'static str],
}

impl DefaultClass {
    pub(super) fn of_storage(listers: Arc<dyn Listers>) -> Self {
        Self {
            listers,
            resource: &[("", "persistentvolumeclaims")],
            classes: STORAGE_CLASSES,
            field: "storageClassName",
            legacy: "volume.beta.kubernetes.io/storage-class",
            markers: &[
                "storageclass.kubernetes.io/is-default-class",
                "storageclass.beta.kubernetes.io/is-default-class",
            ],
        }
    }

    pub(super) fn of_ingress(listers: Arc<dyn Listers>) -> Self {
        Self {
            listers,
            resource: &[("networking.k8s.io", "ingresses")],
            classes: INGRESS_CLASSES,
            field: "ingressClassName",
            legacy: "kubernetes.io/ingress.class",
            markers: &["ingressclass.kubernetes.io/is-default-class"],
        }
    }

    /// Returns the name of the default class; of several, that of the newest, then the first by name.
    fn default_class<'a>(&self, classes: &'a Snapshot) -> Option<&'a str> {
        let is_default =
            |class: &&Arc<Value>| self.markers.iter().any(|key| annotation(class, key) == "true");
        let newest = classes.iter().filter(is_default).max_by(|one, other| {
            let created = |class: &Value| text(class, "/metadata/creationTimestamp").to_owned();
            let name = |class: &Value| text(class, "/metadata/name").to_owned();
            created(one).cmp(&created(other)).then_with(|| name(other).cmp(&name(one)))
        });
        newest.map(|class| text(class, "/metadata/name"))
    }
}

#[async_trait]
impl Admission for DefaultClass {
    fn resources(&self) -> Resources {
        Resources::Only(self.resource)
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        (phase, operation) == (Phase::Mutating, Operation::Create)
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        let is_given = present(object, &format!("/spec/{}", self.field)).is_some()
            || map(object, "/metadata/annotations").contains_key(self.legacy);
        if is_given || !request.subresource().is_empty() {
            return Ok(());
        }
        let classes = self.listers.list(self.classes).await?;
        if let Some(name) = self.default_class(&classes) {
            spec_mut(object).insert(self.field.to_owned(), name.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::testing::{FakeListers, Run};

    fn class(name: &str, created: &str, default: bool) -> Value {
        let key = "storageclass.kubernetes.io/is-default-class";
        json!({"metadata": {"name": name, "creationTimestamp": created, "annotations": {key: default.to_string()}}})
    }

    #[tokio::test]
    async fn claim_without_a_class_gets_the_newest_default() {
        let listers = FakeListers::default();
        for (name, created, default) in [
            ("a", "2026-01-01T00:00:00Z", true),
            ("c", "2026-01-02T00:00:00Z", true),
            ("b", "2026-01-02T00:00:00Z", true),
            ("d", "2026-01-03T00:00:00Z", false),
        ] {
            listers.add(STORAGE_CLASSES, "", class(name, created, default));
        }
        let plugin = DefaultClass::of_storage(Arc::new(listers));
        let run = Run::create("", "persistentvolumeclaims");
        let claimed = |claim: Value| {
            let (run, plugin) = (run.clone(), &plugin);
            async move { run.mutate(plugin, claim).await.unwrap()["spec"]["storageClassName"].clone() }
        };
        assert_eq!(claimed(json!({"spec": {}})).await, "b");
        assert_eq!(claimed(json!({"spec": {"storageClassName": ""}})).await, "");
        let legacy = json!({"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "x"}}, "spec": {}});
        assert_eq!(claimed(legacy).await, Value::Null);
    }

    #[tokio::test]
    async fn ingress_without_a_class_gets_the_default() {
        let class = json!({"metadata": {"name": "nginx",
            "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}});
        let plugin = DefaultClass::of_ingress(FakeListers::with(&[(INGRESS_CLASSES, "", class)]));
        let run = Run::create("networking.k8s.io", "ingresses");
        assert_eq!(run.mutate(&plugin, json!({})).await.unwrap()["spec"]["ingressClassName"], "nginx");
    }
}
