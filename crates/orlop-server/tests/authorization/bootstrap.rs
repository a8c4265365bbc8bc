//! The bootstrap policy.

use std::collections::BTreeMap;

use orlop_server::bootstrap::bootstrap;
use serde_json::{Value, json};

use crate::{
    RBAC,
    support::{call, get, server},
};

/// Tables of Kubernetes' own policy.
const ROLES: &str = include_str!("../../../orlop-auth/data/bootstrap-roles.tsv");
const BINDINGS: &str = include_str!("../../../orlop-auth/data/bootstrap-bindings.tsv");

fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().skip(1).map(|line| line.split('\t').collect())
}

fn texts(value: &Value) -> String {
    let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(|text| if text.is_empty() { "''" } else { text }).collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn every_role_equals_the_table() {
    let (chain, _store) = server().await;
    let mut expected: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for row in rows(ROLES) {
        let rules = expected.entry((row[2], row[3])).or_default();
        if !row[9].is_empty() {
            rules.push(row[5..].join("|"));
        }
    }
    for ((namespace, name), expected) in expected {
        let path = match namespace {
            "" => format!("{RBAC}/clusterroles/{name}"),
            namespace => format!("{RBAC}/namespaces/{namespace}/roles/{name}"),
        };
        let (code, role) = get(&chain, &path).await;
        assert_eq!(code, 200, "{path}");
        let rules = role["rules"].as_array().into_iter().flatten();
        let fields = ["apiGroups", "resources", "resourceNames", "nonResourceURLs", "verbs"];
        let rules = rules.map(|rule| fields.map(|field| texts(&rule[field])).join("|"));
        assert_eq!(rules.collect::<Vec<_>>(), expected, "{path}");
        let labels = &role["metadata"]["labels"];
        assert_eq!(labels["kubernetes.io/bootstrapping"], "rbac-defaults");
    }
}

#[tokio::test]
async fn every_binding_equals_the_table() {
    let (chain, _store) = server().await;
    for row in rows(BINDINGS) {
        let (namespace, name) = (row[2], row[3]);
        let path = match namespace {
            "" => format!("{RBAC}/clusterrolebindings/{name}"),
            namespace => format!("{RBAC}/namespaces/{namespace}/rolebindings/{name}"),
        };
        let (code, binding) = get(&chain, &path).await;
        assert_eq!(code, 200, "{path}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let subject = |subject: &Value| match subject["kind"].as_str() {
            Some("ServiceAccount") => {
                format!("ServiceAccount:{}/{}", text(&subject["namespace"]), text(&subject["name"]))
            }
            _ => format!("{}:{}", text(&subject["kind"]), text(&subject["name"])),
        };
        let subjects = binding["subjects"].as_array().into_iter().flatten().map(subject);
        assert_eq!(subjects.collect::<Vec<_>>().join("; "), row[5], "{path}");
        let role = format!("{}/{}", text(&binding["roleRef"]["kind"]), text(&binding["roleRef"]["name"]));
        assert_eq!(role, row[4], "{path}");
    }
}

#[tokio::test]
async fn start_completes_what_was_taken_away_and_keeps_what_was_added() {
    let (chain, _store) = server().await;
    let discovery = format!("{RBAC}/clusterroles/system:discovery");
    let mine = json!([{"verbs": ["get"], "nonResourceURLs": ["/mine"]}]);
    assert_eq!(call(&chain, "PATCH", &discovery, Some(&json!({"rules": mine}))).await.0, 200);
    let viewer = format!("{RBAC}/clusterrolebindings/system:public-info-viewer");
    let protect = json!({"subjects": [], "metadata": {"annotations":
        {"rbac.authorization.kubernetes.io/autoupdate": "false"}}});
    assert_eq!(call(&chain, "PATCH", &viewer, Some(&protect)).await.0, 200);
    let heapster = format!("{RBAC}/clusterroles/system:heapster");
    assert_eq!(call(&chain, "DELETE", &heapster, None).await.0, 200);
    let untouched = get(&chain, &format!("{RBAC}/clusterroles/system:node")).await.1;
    bootstrap(&chain, 6443, "").await.unwrap();
    let rules = get(&chain, &discovery).await.1["rules"].clone();
    assert_eq!(rules[0], mine[0]);
    assert!(rules.as_array().is_some_and(|rules| rules.len() == 12), "{rules}");
    assert_eq!(get(&chain, &viewer).await.1["subjects"], Value::Null);
    assert_eq!(get(&chain, &heapster).await.0, 200);
    assert_eq!(get(&chain, &format!("{RBAC}/clusterroles/system:node")).await.1, untouched);
}
