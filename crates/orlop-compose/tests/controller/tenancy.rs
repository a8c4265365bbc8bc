//! A tenant composes no more than its service account may create.

use orlop_compose::Settings;
use serde_json::{Value as Json, json};

use crate::harness::{Harness, app, definition, instance, map};

const KRO: &str = "kro.run/v1alpha1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Lets a service account do everything with ConfigMaps of its namespace.
async fn grant(harness: &Harness, account: &str, verbs: &[&str]) -> anyhow::Result<()> {
    let path = format!("/apis/{RBAC}/namespaces/default");
    let role = json!({"apiVersion": RBAC, "kind": "Role", "metadata": {"name": account},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]});
    let binding = json!({"apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": account},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "default"}]});
    for (plural, object) in [("roles", role), ("rolebindings", binding)] {
        let path = format!("{path}/{plural}/{account}?fieldManager=user&force=true");
        harness.call("PATCH", &path, Some(("application/apply-patch+yaml", &object))).await?;
    }
    Ok(())
}

fn message(instance: &Json) -> String {
    Harness::condition(instance, "Ready")["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn rights_of_the_service_account_bound_what_a_graph_makes_and_deletes() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let secret = json!({"id": "secret", "template": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}});
    let mut rgd = app(json!([map("a", "a", json!({"v": "x"})), secret]));
    rgd["spec"]["serviceAccountName"] = json!("composer");
    harness.apply_json(&rgd).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let i = harness.instance("App", "i", "ERROR").await?;
    assert!(message(&i).contains("system:serviceaccount:default:composer"), "{}", message(&i));
    assert!(harness.config_map("a").await?.is_none(), "nothing is made without the right to");

    // What it may do is done; what it may not is told, with the next attempt.
    grant(&harness, "composer", &["get", "create", "patch"]).await?;
    harness.until("the allowed node appears", async || harness.config_map("a").await).await?;
    let i = harness
        .until("only the Secret fails", async || {
            let i = harness.get(KRO, "App", "i").await?.unwrap_or_default();
            let text = message(&i);
            Ok((text.contains("secrets") && !text.contains("configmaps")).then_some(i))
        })
        .await?;
    assert!(harness.get("v1", "Secret", "s").await?.is_none());
    let failed =
        i["status"]["managedResources"].as_array().into_iter().flatten().find(|node| node["id"] == "secret");
    let failed = failed.cloned().unwrap_or_default();
    assert_eq!(failed["state"], "ERROR");
    assert!(failed["nextRetryTime"].is_string() && failed["since"].is_string(), "{failed}");

    // It may not delete, so neither may the instance that acts as it.
    harness.delete(KRO, "App", "i").await?;
    harness
        .until("deletion is blocked and says why", async || {
            let i = harness.get(KRO, "App", "i").await?.unwrap_or_default();
            let text =
                Harness::condition(&i, "ResourcesReady")["message"].as_str().unwrap_or_default().to_owned();
            Ok(text.contains("deletion blocked: configmaps \"a\" is forbidden").then_some(()))
        })
        .await?;
    assert!(harness.config_map("a").await?.is_some());
    grant(&harness, "composer", &["get", "create", "patch", "delete"]).await?;
    harness.gone(KRO, "App", "i").await?;
    assert!(harness.config_map("a").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn service_account_of_each_instance_comes_from_its_spec() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    grant(&harness, "red", &["*"]).await?;
    let mut rgd = definition(
        "app",
        "App",
        json!({"as": "string"}),
        json!({}),
        json!([map("a", "${schema.metadata.name + '-map'}", json!({}))]),
    );
    rgd["spec"]["serviceAccountName"] = json!("${schema.spec.as}");
    harness.apply_json(&rgd).await?;
    harness.definition("app", "Active").await?;
    for (name, account) in [("one", "red"), ("two", "blue"), ("three", "kube-system/red"), ("four", "")] {
        harness.apply_json(&instance("App", name, json!({"as": account}))).await?;
    }
    harness.instance("App", "one", "ACTIVE").await?;
    let two = harness.instance("App", "two", "ERROR").await?;
    assert!(message(&two).contains("system:serviceaccount:default:blue"), "{}", message(&two));
    // Neither another namespace's account nor none at all lends more rights.
    for name in ["three", "four"] {
        let refused = harness.instance("App", name, "ERROR").await?;
        assert!(message(&refused).contains("service account"), "{}", message(&refused));
        assert!(harness.config_map(&format!("{name}-map")).await?.is_none());
    }
    Ok(())
}

#[tokio::test]
async fn default_service_account_holds_for_definitions_that_name_none() -> anyhow::Result<()> {
    let settings = Settings { default_service_account: Some("tenant".to_owned()), ..Settings::default() };
    let harness = Harness::with(settings).await?;
    harness.apply_json(&app(json!([map("a", "a", json!({}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let i = harness.instance("App", "i", "ERROR").await?;
    assert!(message(&i).contains("system:serviceaccount:default:tenant"), "{}", message(&i));
    grant(&harness, "tenant", &["*"]).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    Ok(())
}

#[tokio::test]
async fn service_account_reads_external_references_too() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    grant(&harness, "composer", &["*"]).await?;
    harness.apply_json(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs"}, "stringData": {"k": "v"}})).await?;
    let external = json!({"id": "theirs", "externalRef": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs"}}});
    let mut rgd = app(json!([external, map("a", "a", json!({"v": "${string(theirs.data.k)}"}))]));
    rgd["spec"]["serviceAccountName"] = json!("composer");
    harness.apply_json(&rgd).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let i = harness.instance("App", "i", "ERROR").await?;
    assert!(message(&i).contains("external reference \"theirs\": forbidden"), "{}", message(&i));
    assert!(harness.config_map("a").await?.is_none(), "a Secret is not read past its rights");
    Ok(())
}
