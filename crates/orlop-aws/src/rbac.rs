//! Manifests: the rights of the controllers and the traffic that they need.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{bridge, kinds::KINDS, settings::Settings};

/// Name of the ServiceAccount and of its right to watch.
const ACCOUNT: &str = "orlop-aws";
/// Name of the right to write.
const WRITER: &str = "orlop-aws-writer";

/// Returns Namespace, ServiceAccount and roles: one to watch everywhere, one to write in the watched namespaces, or in all
/// where none is named, and one for users to read status.
pub fn rbac(settings: &Settings, namespace: &str) -> Vec<Value> {
    let rule = |group: &str, resources: &[String], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    // What is only referred to belongs to other controllers: it is read.
    let mut referred: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for kind in KINDS.iter().filter(|kind| settings.has_kind(kind.about().kind)) {
        let about = kind.about();
        groups.entry(about.group()).or_default().insert(about.plural.to_owned());
        for reference in about.references {
            let resource = crate::references::resource_of(reference.target.0, reference.target.1);
            referred.entry(resource.group).or_default().insert(resource.plural);
        }
    }
    for kind in bridge::KINDS.iter().filter(|kind| settings.has_kind(kind.about().kind)) {
        let about = kind.about();
        groups.entry(settings.bridge_group.clone()).or_default().insert(about.plural.to_owned());
        for (service, kind) in about.children {
            let resource = crate::references::resource_of(service, kind);
            groups.entry(resource.group).or_default().insert(resource.plural);
        }
        for (service, kind) in about.references {
            let resource = crate::references::resource_of(service, kind);
            referred.entry(resource.group).or_default().insert(resource.plural);
        }
    }
    groups.insert(
        "services.k8s.aws".to_owned(),
        ["fieldexports", "iamroleselectors"].map(str::to_owned).into(),
    );
    let (mut rules, mut write, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for (group, plurals) in &groups {
        let plurals: Vec<String> = plurals.iter().cloned().collect();
        let statuses: Vec<String> = plurals.iter().map(|plural| format!("{plural}/status")).collect();
        rules.push(rule(group, &plurals, &["get", "list", "watch"]));
        write.push(rule(group, &plurals, &["create", "update", "patch", "delete"]));
        write.push(rule(group, &statuses, &["get", "update", "patch"]));
        read.push(rule(group, &plurals, &["get", "list", "watch"]));
    }
    for (group, plurals) in referred {
        let known = groups.get(&group);
        let others = plurals.into_iter().filter(|plural| known.is_none_or(|known| !known.contains(plural)));
        let others: Vec<String> = others.collect();
        if !others.is_empty() {
            rules.push(rule(&group, &others, &["get", "list", "watch"]));
        }
    }
    let one = |name: &str| vec![name.to_owned()];
    rules.push(rule("", &one("namespaces"), &["get", "list", "watch"]));
    rules.push(rule("", &one("configmaps"), &["get", "list", "watch"]));
    write.push(rule("", &one("configmaps"), &["patch"]));
    // Certificates are imported from Secrets, and FieldExports may write to them.
    write.push(rule("", &one("secrets"), &["get", "patch"]));
    write.push(rule("", &one("events"), &["create", "patch"]));
    rules.push(rule(
        "coordination.k8s.io",
        &one("leases"),
        &["get", "list", "watch", "create", "update", "patch"],
    ));
    let definitions = one("customresourcedefinitions");
    rules.push(rule(
        "apiextensions.k8s.io",
        &definitions,
        &["get", "list", "watch", "create", "update", "patch"],
    ));
    let api = "rbac.authorization.k8s.io/v1";
    let role = |name: &str, rules: &[Value]| json!({"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = |role: &str, within: Option<&str>| {
        let mut binding = json!({"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]});
        if let Some(within) = within {
            binding["kind"] = json!("RoleBinding");
            binding["metadata"]["namespace"] = json!(within);
        }
        binding
    };
    let mut view = role("orlop-aws-view", &read);
    view["metadata"]["labels"] = json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"});
    let mut all = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": namespace,
            "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::ACCOUNT:role/orlop-aws"}}}),
        role(ACCOUNT, &rules),
        role(WRITER, &write),
        view,
        binding(ACCOUNT, None),
    ];
    match settings.namespaces.is_empty() {
        true => all.push(binding(WRITER, None)),
        false => all.extend(settings.namespaces.iter().map(|within| binding(WRITER, Some(within)))),
    }
    all
}

/// Returns a NetworkPolicy: egress to DNS, to the API server and to AWS, all by TLS.
pub fn network_policy(namespace: &str) -> Value {
    let port = |protocol: &str, port: u16| json!({"protocol": protocol, "port": port});
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "orlop-aws", "namespace": namespace},
        "spec": {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "orlop-aws"}}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [port("TCP", 8080), port("TCP", 8081)]}],
            "egress": [{"ports": [port("UDP", 53), port("TCP", 53)]}, {"ports": [port("TCP", 443), port("TCP", 6443)]}]}})
}
