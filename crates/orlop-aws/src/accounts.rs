//! Region, endpoint, account and role of an object.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::Value;

use crate::{
    client::{Client, Failure, Result, Session},
    cluster::{Cluster, Resource, text},
    settings::Settings,
};

/// Annotations and labels.
type Metadata = (BTreeMap<String, String>, BTreeMap<String, String>);

/// Cache of namespaces' annotations and labels, fed by a watch.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    cache: Mutex<HashMap<String, Metadata>>,
}

impl Namespaces {
    /// Records a namespace. True if its annotations or labels changed.
    pub(crate) fn update(
        &self,
        name: &str,
        annotations: BTreeMap<String, String>,
        labels: BTreeMap<String, String>,
    ) -> bool {
        let mut known = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let new = (annotations, labels);
        let old = known.insert(name.to_owned(), new.clone());
        old.is_some_and(|old| old != new)
    }

    fn contains(&self, name: &str) -> bool {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }

    pub(crate) fn remove(&self, name: &str) {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    pub(crate) fn annotation(&self, namespace: &str, key: &str) -> Option<String> {
        let known = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(namespace)?.0.get(key).cloned()
    }

    fn labels(&self, namespace: &str) -> BTreeMap<String, String> {
        let known = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(namespace).map(|(_, labels)| labels.clone()).unwrap_or_default()
    }
}

pub(crate) fn namespace_resource() -> Resource {
    Resource::new("", "v1", ("Namespace", "namespaces"), false)
}

pub(crate) fn config_map_resource() -> Resource {
    Resource::new("", "v1", ("ConfigMap", "configmaps"), true)
}

pub(crate) fn selector_resource() -> Resource {
    Resource::new("services.k8s.aws", "v1alpha1", ("IAMRoleSelector", "iamroleselectors"), false)
}

/// Chooses where calls go.
#[derive(Debug)]
pub(crate) struct Accounts {
    pub(crate) cluster: Cluster,
    pub(crate) client: Arc<Client>,
    pub(crate) namespaces: Namespaces,
    pub(crate) settings: Settings,
}

/// A session, and the selector that chose its role.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) session: Session,
    pub(crate) selector: Option<String>,
}

impl Accounts {
    /// Reads a namespace that the watch has not shown yet: its region and account must be known before the first call.
    pub(crate) async fn load_namespace(&self, name: &str) -> orlop_client::Result<()> {
        if self.namespaces.contains(name) {
            return Ok(());
        }
        if let Some(found) = self.cluster.get(&namespace_resource(), "", name).await? {
            let map = |pointer: &str| {
                let value = found.pointer(pointer).cloned().unwrap_or_default();
                serde_json::from_value(value).unwrap_or_default()
            };
            self.namespaces.update(name, map("/metadata/annotations"), map("/metadata/labels"));
        }
        Ok(())
    }

    /// Opens the session of an object of a service and kind.
    pub(crate) async fn session(
        &self,
        object: &Value,
        service: &str,
        group: &str,
        kind: &str,
    ) -> Result<Chosen> {
        let namespace = text(object, "/metadata/namespace").unwrap_or_default();
        let annotation =
            |key: &str| self.namespaces.annotation(namespace, &format!("services.k8s.aws/{key}"));
        let known = text(object, "/status/ackResourceMetadata/region");
        let asked = object.pointer("/metadata/annotations/services.k8s.aws~1region").and_then(Value::as_str);
        let wanted = asked.map(str::to_owned).or_else(|| annotation("default-region"));
        if let (Some(known), Some(wanted)) = (known, &wanted)
            && known != wanted
        {
            return Err(Failure::Terminal(format!(
                "Resource already exists in region {known}, but the desired state specifies region {wanted}. "
            )));
        }
        let region = known.map(str::to_owned).or(wanted).unwrap_or_else(|| self.settings.region.clone());
        let (role, selector) = self.role(object, namespace, service, group, kind).await?;
        let endpoint = annotation("endpoint-url");
        let version = env!("CARGO_PKG_VERSION");
        let labels = object.pointer("/metadata/labels");
        let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
        let composed =
            label("app.kubernetes.io/managed-by") == Some("kro") || label("kro.run/owned") == Some("true");
        let managed = if composed { "; ManagedBy/kro" } else { "" };
        let agent = format!(
            "aws-controllers-k8s/{group}-{version} (orlop-aws; CRDKind/{kind}; CRDVersion/v1alpha1{managed})"
        );
        let session = self.client.session(&region, role.as_deref(), endpoint.as_deref(), agent).await?;
        if let Some(owner) = text(object, "/status/ackResourceMetadata/ownerAccountID")
            && owner != session.account
        {
            return Err(Failure::Terminal(format!(
                "Resource already exists in account {owner}, but the desired state specifies account {}. ",
                session.account
            )));
        }
        Ok(Chosen { session, selector })
    }

    /// True if the deletion policy is `retain`: of the object, of its namespace for the service, of its namespace,
    /// or the flag.
    pub(crate) fn retains(&self, service: &str, object: &Value) -> bool {
        let namespace = text(object, "/metadata/namespace").unwrap_or_default();
        let of_namespace =
            |key: &str| self.namespaces.annotation(namespace, key).filter(|policy| !policy.is_empty());
        let own = object.pointer("/metadata/annotations/services.k8s.aws~1deletion-policy");
        let policy = own
            .and_then(Value::as_str)
            .map(str::to_owned)
            .or_else(|| of_namespace(&format!("{service}.services.k8s.aws/deletion-policy")))
            .or_else(|| of_namespace("services.k8s.aws/deletion-policy"));
        policy.map_or(self.settings.retain, |policy| policy == "retain")
    }

    async fn role(
        &self,
        object: &Value,
        namespace: &str,
        service: &str,
        group: &str,
        kind: &str,
    ) -> Result<(Option<String>, Option<String>)> {
        if self.settings.role_selectors {
            return self.selected(object, namespace, group, kind).await;
        }
        if !self.settings.carm {
            return Ok((None, None));
        }
        let annotation =
            |key: &str| self.namespaces.annotation(namespace, &format!("services.k8s.aws/{key}"));
        let gates = self.settings.gates;
        let team = annotation("team-id").filter(|_| gates.team_roles);
        let (id, map) = match (team, annotation("owner-account-id")) {
            (Some(team), _) => (team, "ack-role-team-map"),
            (None, Some(account)) => (account, "ack-role-account-map"),
            (None, None) => return Ok((None, None)),
        };
        let missing = |cause: &str| {
            Failure::Role(format!(
                "retrieving role ARN for account/team ID \"{id}\" from \"{map}\" configmap: {cause}"
            ))
        };
        let found = self.cluster.get(&config_map_resource(), &self.settings.system_namespace, map).await?;
        let Some(found) = found else { return Err(missing("CARM configmap not found")) };
        let data = found.get("data");
        let by_service = format!("{service}.{id}");
        let by_service = |data: &'_ Value| data.get(&by_service).filter(|_| gates.service_roles).cloned();
        let role = data.and_then(|data| by_service(data).or_else(|| data.get(&id).cloned()));
        let role = role.as_ref().and_then(Value::as_str);
        match role {
            None => Err(missing("key not found in CARM configmap")),
            Some("") => Err(missing("role value is empty in CARM configmap")),
            Some(role) => Ok((Some(role.to_owned()), None)),
        }
    }

    async fn selected(
        &self,
        object: &Value,
        namespace: &str,
        group: &str,
        kind: &str,
    ) -> Result<(Option<String>, Option<String>)> {
        let all = self.cluster.list(&selector_resource(), "").await?;
        let labels = self.namespaces.labels(namespace);
        let labels = serde_json::to_value(labels).unwrap_or_default();
        let matching: Vec<&Value> = all
            .iter()
            .filter(|selector| selects(&selector["spec"], object, namespace, &labels, group, kind))
            .collect();
        match matching.as_slice() {
            [] => Ok((None, None)),
            [one] => {
                let arn = text(one, "/spec/arn").unwrap_or_default();
                let described = format!(
                    "roleARN: {arn}, selectorName: {}, selectorResourceVersion: {}",
                    text(one, "/metadata/name").unwrap_or_default(),
                    text(one, "/metadata/resourceVersion").unwrap_or_default()
                );
                Ok((Some(arn.to_owned()), Some(described)))
            }
            several => Err(Failure::Terminal(format!(
                "multiple ({}) matching IAMRoleSelectors found",
                several.len()
            ))),
        }
    }
}

/// True if a selector's spec selects an object: all of its fields do, any item of a list does.
fn selects(
    spec: &Value,
    object: &Value,
    namespace: &str,
    namespace_labels: &Value,
    group: &str,
    kind: &str,
) -> bool {
    let matches = |wanted: &Value, labels: Option<&Value>| {
        wanted
            .as_object()
            .into_iter()
            .flatten()
            .all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
    };
    let names = spec["namespaceSelector"]["names"].as_array();
    let by_name = names.is_none_or(|names| names.is_empty() || names.iter().any(|name| name == namespace));
    let by_label =
        matches(&spec["namespaceSelector"]["labelSelector"]["matchLabels"], Some(namespace_labels));
    let types = spec["resourceTypeSelector"].as_array();
    let by_type = types.is_none_or(|types| {
        types.is_empty()
            || types.iter().any(|wanted| {
                let fits = |field: &str, value: &str| {
                    wanted[field].as_str().is_none_or(|want| want.is_empty() || want == value)
                };
                fits("group", group) && fits("version", "v1alpha1") && fits("kind", kind)
            })
    });
    let by_own = matches(&spec["resourceLabelSelector"]["matchLabels"], object.pointer("/metadata/labels"));
    by_name && by_label && by_type && by_own
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::selects;

    #[test]
    fn selector_is_and_between_fields_and_or_inside_a_list() {
        let spec = json!({"namespaceSelector": {"names": ["a", "b"]}, "resourceTypeSelector": [{"kind": "Role"}, {"group": "s3.services.k8s.aws"}]});
        let object = json!({});
        let yes = |namespace: &str, group: &str, kind: &str| {
            selects(&spec, &object, namespace, &json!({}), group, kind)
        };
        assert!(yes("a", "iam.services.k8s.aws", "Role") && yes("b", "s3.services.k8s.aws", "Bucket"));
        assert!(!yes("c", "iam.services.k8s.aws", "Role") && !yes("a", "iam.services.k8s.aws", "Policy"));
    }
}
