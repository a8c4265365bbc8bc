//! Objects that let the controller work in a cluster: CRDs, rights, and the Deployment that runs it.

use orlop_api::user::UserInfo;
use orlop_client::{
    Api, Client, Error,
    api::{DeleteParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use orlop_compose::crd::{definition_crd, revision_crd};
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// Label of ClusterRoles that extend the controller's rights, as in kro's chart.
const AGGREGATE: &str = "rbac.kro.run/aggregate-to-controller";
/// Service account of the controller in the server's own process.
const ACCOUNT: &str = "resource-graph-definition-controller";
const ACCOUNT_NAMESPACE: &str = "kube-system";

/// Rights of the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Rights {
    /// All rights, so that any kind can be composed: kro's default.
    #[default]
    Unrestricted,
    /// Only its own kinds, and what ClusterRoles labelled rbac.kro.run/aggregate-to-controller=true add.
    Aggregation,
}

/// The ClusterRoles of the controller.
pub(super) fn cluster_roles(rights: Rights) -> Vec<Value> {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": verbs});
    let role = |name: &str, rules: Vec<Value>| json!({"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    if rights == Rights::Unrestricted {
        let mut all = role("orlop-compose", vec![rule(&["*"], &["*"], &["*"])]);
        all["rules"].as_array_mut().into_iter().for_each(|rules| {
            rules.push(json!({"nonResourceURLs": ["*"], "verbs": ["*"]}));
        });
        return vec![all];
    }
    let read = ["get", "list", "watch"];
    let write = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let own = role(
        "orlop-compose",
        vec![
            rule(&["kro.run"], &["*"], &["*"]),
            rule(&["internal.kro.run"], &["*"], &["*"]),
            rule(&["apiextensions.k8s.io"], &["customresourcedefinitions"], &write),
            rule(&["coordination.k8s.io"], &["leases"], &write),
            rule(&["", "events.k8s.io"], &["events"], &["create", "patch"]),
            rule(&[""], &["namespaces"], &read),
            rule(&[""], &["serviceaccounts"], &["impersonate"]),
        ],
    );
    let mut kinds = role("orlop-compose-kinds", Vec::new());
    kinds["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {AGGREGATE: "true"}}]});
    vec![own, kinds]
}

fn bindings(rights: Rights, namespace: &str, account: &str) -> Vec<Value> {
    let roles = cluster_roles(rights);
    let names = roles.iter().filter_map(|role| role["metadata"]["name"].as_str());
    names
        .map(|name| {
            json!({"apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": account}]})
        })
        .collect()
}

/// Everything that installs the controller in a cluster.
pub(super) fn manifests(namespace: &str, image: &str, rights: Rights) -> Vec<Value> {
    let labels = json!({"app.kubernetes.io/name": "orlop-compose"});
    let metadata = json!({"name": "orlop-compose", "namespace": namespace, "labels": labels});
    let port = |name: &str, port: u16| json!({"name": name, "containerPort": port});
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "health"}, "periodSeconds": 10});
    let container = json!({
        "name": "controller", "image": image,
        "args": ["compose", "run", "--metrics-bind-address=:8078", "--health-probe-bind-address=:8079",
            format!("--leader-election-namespace={namespace}")],
        "ports": [port("metrics", 8078), port("health", 8079)],
        "livenessProbe": probe("/healthz"), "readinessProbe": probe("/readyz"),
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]}},
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"serviceAccountName": "orlop-compose", "containers": [container],
                "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}}}}});
    let mut all = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        definition_crd(),
        revision_crd(),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
    ];
    all.extend(cluster_roles(rights));
    all.extend(bindings(rights, namespace, "orlop-compose"));
    all.push(deployment);
    all
}

/// The user that the controller in the server's own process acts as.
pub(crate) fn user() -> UserInfo {
    UserInfo::service_account(ACCOUNT_NAMESPACE, ACCOUNT)
}

/// Grants the controller in the server's own process its rights, and takes those of another mode away.
pub(crate) async fn grant(client: &Client, rights: Rights) -> anyhow::Result<()> {
    let api = |kind: &str| {
        let gvk = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
        let plural = format!("{}s", kind.to_lowercase());
        Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, &plural))
    };
    let parameters = PatchParams::apply("orlop-compose").force();
    let objects = cluster_roles(rights).into_iter().chain(bindings(rights, ACCOUNT_NAMESPACE, ACCOUNT));
    for object in objects {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let (kind, name) = (kind.as_str().unwrap_or_default(), name.as_str().unwrap_or_default());
        api(kind).patch(name, &parameters, &Patch::Apply(&object)).await?;
    }
    if rights == Rights::Unrestricted {
        for kind in ["ClusterRoleBinding", "ClusterRole"] {
            match api(kind).delete("orlop-compose-kinds", &DeleteParams::default()).await {
                Ok(_) => {}
                Err(Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregation_grants_no_wildcard_group() {
        let roles = cluster_roles(Rights::Aggregation);
        let text = serde_json::to_string(&roles).unwrap();
        assert!(!text.contains("\"apiGroups\":[\"*\"]"), "{text}");
        assert_eq!(roles[1]["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"][AGGREGATE], "true");
    }
}
