//! ApplySets: drift, conflicts, adoption, retention, restarts.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::harness::{Harness, app, definition, instance, map};

async fn versions(harness: &Harness) -> anyhow::Result<BTreeMap<String, String>> {
    let mut all = harness.list("v1", "ConfigMap", None).await?;
    all.extend(harness.list("kro.run/v1alpha1", "App", None).await?);
    let text = |object: &Json, field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    Ok(all.iter().map(|object| (text(object, "name"), text(object, "resourceVersion"))).collect())
}

#[tokio::test]
async fn drift_is_corrected_and_foreign_fields_are_kept() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&app(json!([map("a", "a", json!({"v": "${schema.spec.value}"}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    harness.patch(("v1", "ConfigMap", "a"), json!({"data": {"v": "changed", "mine": "kept"}})).await?;
    let a = harness
        .until("drift is corrected", async || {
            let a = harness.config_map("a").await?.unwrap_or_default();
            Ok((a["data"]["v"] == "one").then_some(a))
        })
        .await?;
    assert_eq!(a["data"]["mine"], "kept");
    harness.delete("v1", "ConfigMap", "a").await?;
    harness.until("a deleted child is recreated", async || harness.config_map("a").await).await?;
    Ok(())
}

#[tokio::test]
async fn child_whose_labels_were_changed_is_still_known() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&app(json!([map("a", "a", json!({"v": "1"}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    // Labels of another instance, then none at all.
    let named = json!({"kro.run/instance-name": "other", "kro.run/instance-group": "example.com"});
    let none =
        json!({"kro.run/instance-name": null, "kro.run/owned": null, "applyset.kubernetes.io/part-of": null});
    for labels in [named, none] {
        harness
            .patch(("v1", "ConfigMap", "a"), json!({"metadata": {"labels": labels}, "data": {"v": "2"}}))
            .await?;
        harness
            .until("the child is put back", async || {
                let a = harness.config_map("a").await?.unwrap_or_default();
                let labels = &a["metadata"]["labels"];
                let whole = labels["kro.run/instance-name"] == "i" && labels["kro.run/owned"] == "true";
                Ok((whole && a["data"]["v"] == "1").then_some(()))
            })
            .await?;
    }
    Ok(())
}

#[tokio::test]
async fn restart_writes_nothing_when_nothing_changed() -> anyhow::Result<()> {
    let mut harness = Harness::start().await?;
    let resources = json!([
        map("a", "a", json!({"v": "${schema.spec.value}"})),
        map("b", "b", json!({"v": "${a.data.v}"}))
    ]);
    harness.apply_json(&app(resources)).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    let before = versions(&harness).await?;
    harness.restart();
    // A second instance shows that the new controller is at work.
    harness.apply_json(&definition("other", "Other", json!({}), json!({}), json!([]))).await?;
    harness.definition("other", "Active").await?;
    harness.apply_json(&instance("Other", "o", json!({}))).await?;
    harness.instance("Other", "o", "ACTIVE").await?;
    assert_eq!(versions(&harness).await?, before);
    let revisions = harness.list("internal.kro.run/v1alpha1", "GraphRevision", None).await?;
    assert_eq!(revisions.len(), 2, "a restart issues no revision");
    Ok(())
}

#[tokio::test]
async fn object_of_another_instance_is_left_to_it() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&app(json!([map("a", "shared", json!({"v": "${schema.spec.name}"}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "first", json!({"name": "first"}))).await?;
    harness.instance("App", "first", "ACTIVE").await?;
    harness.apply_json(&instance("App", "second", json!({"name": "second"}))).await?;
    let second = harness.instance("App", "second", "ERROR").await?;
    let message = Harness::condition(&second, "Ready")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("resource belongs to a different ApplySet: default/shared"), "{message}");
    assert_eq!(harness.config_map("shared").await?.unwrap_or_default()["data"]["v"], "first");
    // Deleting the second leaves the first's object alone.
    harness.delete("kro.run/v1alpha1", "App", "second").await?;
    harness.gone("kro.run/v1alpha1", "App", "second").await?;
    assert!(harness.config_map("shared").await?.is_some());
    Ok(())
}

/// The watch of this controller's objects shows none of these: what is there decides all the same.
#[tokio::test]
async fn object_of_another_tool_is_left_to_it_and_one_of_nobody_is_adopted() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let labels = json!({"applyset.kubernetes.io/part-of": "applyset-of-another-tool-v1"});
    for (name, labels) in [("theirs", labels), ("free", json!({}))] {
        harness
            .apply_json(&json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "labels": labels}, "data": {"v": "before"}}))
            .await?;
    }
    let nodes =
        json!([map("free", "free", json!({"v": "ours"})), map("theirs", "theirs", json!({"v": "ours"}))]);
    harness.apply_json(&app(nodes)).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let refused = harness.instance("App", "i", "ERROR").await?;
    let message = Harness::condition(&refused, "Ready")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("resource belongs to a different ApplySet: default/theirs"), "{message}");
    assert_eq!(harness.config_map("theirs").await?.unwrap_or_default()["data"]["v"], "before");
    assert_eq!(harness.config_map("free").await?.unwrap_or_default()["data"]["v"], "ours");
    Ok(())
}

#[tokio::test]
async fn lifecycle_refuses_to_adopt_and_retains_on_delete() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"v": "theirs"}})).await?;
    let mut never = map("never", "theirs", json!({"v": "ours"}));
    never["lifecycle"] = json!({"adopt": "Never"});
    let mut kept = map("kept", "kept", json!({"v": "k"}));
    kept["lifecycle"] = json!({"onDelete": "Retain"});
    harness.apply_json(&app(json!([never, kept]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let i = harness.instance("App", "i", "ERROR").await?;
    assert!(
        Harness::condition(&i, "Ready")["message"]
            .as_str()
            .unwrap_or_default()
            .contains("lifecycle.adopt is Never")
    );
    assert_eq!(harness.config_map("theirs").await?.unwrap_or_default()["data"]["v"], "theirs");
    harness.delete("kro.run/v1alpha1", "App", "i").await?;
    harness.gone("kro.run/v1alpha1", "App", "i").await?;
    let kept = harness.config_map("kept").await?.unwrap_or_default();
    assert_eq!(kept["data"]["v"], "k");
    assert!(
        kept["metadata"]["labels"].as_object().is_none_or(|labels| !labels.contains_key("kro.run/owned")),
        "{kept}"
    );
    Ok(())
}

#[tokio::test]
async fn deletion_goes_wave_by_wave_and_survives_a_restart() -> anyhow::Result<()> {
    let mut harness = Harness::start().await?;
    let mut held = map("held", "held", json!({"v": "${base.data.v}"}));
    held["template"]["metadata"]["finalizers"] = json!(["example.com/hold"]);
    harness.apply_json(&app(json!([map("base", "base", json!({"v": "b"})), held]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    harness.delete("kro.run/v1alpha1", "App", "i").await?;
    harness
        .until("the higher wave is being deleted", async || {
            let held = harness.config_map("held").await?.unwrap_or_default();
            Ok(held["metadata"]["deletionTimestamp"].is_string().then_some(()))
        })
        .await?;
    harness.restart();
    let i = harness.get("kro.run/v1alpha1", "App", "i").await?.unwrap_or_default();
    assert_eq!(i["status"]["state"], "DELETING");
    assert!(harness.config_map("base").await?.is_some(), "the lower wave waits");
    harness.patch(("v1", "ConfigMap", "held"), json!({"metadata": {"finalizers": null}})).await?;
    harness.gone("kro.run/v1alpha1", "App", "i").await?;
    assert!(harness.config_map("base").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn suspended_instance_is_left_alone_but_still_deleted() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&app(json!([map("a", "a", json!({"v": "${schema.spec.value}"}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    let at = ("kro.run/v1alpha1", "App", "i");
    harness.patch(at, json!({"metadata": {"annotations": {"kro.run/reconcile": "Suspended"}}, "spec": {"value": "two"}})).await?;
    harness
        .until("the condition says so", async || {
            let i = harness.get(at.0, at.1, at.2).await?.unwrap_or_default();
            Ok((Harness::condition(&i, "Ready")["reason"] == "ReconciliationSuspended").then_some(()))
        })
        .await?;
    assert_eq!(harness.config_map("a").await?.unwrap_or_default()["data"]["v"], "one");
    harness.delete(at.0, at.1, at.2).await?;
    harness.gone(at.0, at.1, at.2).await?;
    assert!(harness.config_map("a").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn service_account_limits_what_is_composed() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut rgd = app(json!([map("a", "a", json!({"v": "x"}))]));
    rgd["spec"]["serviceAccountName"] = json!("composer");
    harness.apply_json(&rgd).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let i = harness.instance("App", "i", "ERROR").await?;
    let message = Harness::condition(&i, "Ready")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("system:serviceaccount:default:composer"), "{message}");
    assert!(harness.config_map("a").await?.is_none());
    Ok(())
}
