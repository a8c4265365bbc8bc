//! Definitions: revisions, updates, breaking changes, deletion.

use serde_json::json;

use crate::harness::{Harness, app, definition, instance, map};

const RGD: (&str, &str, &str) = ("kro.run/v1alpha1", "ResourceGraphDefinition", "app");

#[tokio::test]
async fn bad_update_leaves_the_last_good_revision_serving() -> anyhow::Result<()> {
    let mut harness = Harness::start().await?;
    harness.apply_json(&app(json!([map("a", "${schema.spec.name}", json!({"v": "1"}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&app(json!([map("a", "${schema.spec.name}", json!({"v": "${nobody.x}"}))]))).await?;
    let rgd = harness.definition("app", "Inactive").await?;
    let accepted = Harness::condition(&rgd, "GraphAccepted");
    assert_eq!(
        (accepted["status"].as_str(), accepted["reason"].as_str()),
        (Some("False"), Some("InvalidResourceGraph"))
    );
    assert!(
        accepted["message"].as_str().unwrap_or_default().contains("references unknown identifiers: [nobody]")
    );
    assert_eq!(rgd["status"]["lastIssuedRevision"], 1);
    // The revision that goes on serving is looked at again for every generation.
    let resolved = Harness::condition(&rgd, "GraphRevisionsResolved");
    assert_eq!(
        (&resolved["status"], &resolved["message"]),
        (&json!("True"), &json!("revision 1 compiled and active"))
    );
    assert_eq!(resolved["observedGeneration"], rgd["metadata"]["generation"]);
    harness.apply_json(&instance("App", "i", json!({"name": "one"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    // A restarted controller finds the last good revision again.
    harness.restart();
    harness.apply_json(&instance("App", "j", json!({"name": "two"}))).await?;
    harness.instance("App", "j", "ACTIVE").await?;
    assert_eq!(harness.list("internal.kro.run/v1alpha1", "GraphRevision", None).await?.len(), 1);
    // Mended, it goes on with the next number.
    harness.apply_json(&app(json!([map("a", "${schema.spec.name}", json!({"v": "2"}))]))).await?;
    let rgd = harness.definition("app", "Active").await?;
    assert_eq!(rgd["status"]["lastIssuedRevision"], 2);
    harness
        .until("instances follow the new revision", async || {
            let map = harness.config_map("one").await?.unwrap_or_default();
            Ok((map["data"]["v"] == "2").then_some(()))
        })
        .await
}

#[tokio::test]
async fn breaking_change_is_refused_until_it_is_allowed() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&app(json!([]))).await?;
    harness.definition("app", "Active").await?;
    let without = definition("app", "App", json!({"name": "string"}), json!({}), json!([]));
    harness.apply_json(&without).await?;
    let rgd = harness.definition("app", "Inactive").await?;
    let message = Harness::condition(&rgd, "KindReady")["message"].as_str().unwrap_or_default().to_owned();
    assert!(
        message.contains(
            "cannot update CRD apps.kro.run: breaking changes detected: Property value was removed"
        ),
        "{message}"
    );
    assert!(message.contains("kro.run/allow-breaking-changes"), "{message}");
    harness
        .patch(RGD, json!({"metadata": {"annotations": {"kro.run/allow-breaking-changes": "true"}}}))
        .await?;
    harness.definition("app", "Active").await?;
    let crd = harness
        .get("apiextensions.k8s.io/v1", "CustomResourceDefinition", "apps.kro.run")
        .await?
        .unwrap_or_default();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert!(spec["properties"]["value"].is_null() && spec["properties"]["name"].is_object());
    Ok(())
}

#[tokio::test]
async fn crd_is_restored_and_belongs_to_the_first_definition() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&app(json!([]))).await?;
    harness.definition("app", "Active").await?;
    let crd = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "apps.kro.run");
    let first = harness.get(crd.0, crd.1, crd.2).await?.unwrap_or_default();
    harness.patch(crd, json!({"spec": {"names": {"shortNames": ["zz"]}}})).await?;
    harness
        .until("an edited CRD is restored", async || {
            let found = harness.get(crd.0, crd.1, crd.2).await?.unwrap_or_default();
            Ok(found["spec"]["names"]["shortNames"].is_null().then_some(()))
        })
        .await?;
    harness.delete(crd.0, crd.1, crd.2).await?;
    harness
        .until("a deleted CRD is created again", async || {
            let found = harness.get(crd.0, crd.1, crd.2).await?;
            Ok(found.filter(|found| found["metadata"]["uid"] != first["metadata"]["uid"]).map(|_| ()))
        })
        .await?;
    let mut second = app(json!([]));
    second["metadata"]["name"] = json!("second");
    harness.apply_json(&second).await?;
    let second = harness.definition("second", "Inactive").await?;
    let message = Harness::condition(&second, "KindReady")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("CRD is owned by another ResourceGraphDefinition app"), "{message}");
    harness.delete(RGD.0, RGD.1, "second").await?;
    harness.gone(RGD.0, RGD.1, "second").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    Ok(())
}

#[tokio::test]
async fn definition_waits_for_a_kind_and_says_so() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let uses = json!([{"id": "b", "template": {"apiVersion": "kro.run/v1alpha1", "kind": "Base", "metadata": {"name": "b"}, "spec": {"v": "${schema.spec.name}"}}}]);
    harness.apply_json(&app(uses)).await?;
    let rgd = harness.definition("app", "Inactive").await?;
    let message =
        Harness::condition(&rgd, "GraphAccepted")["message"].as_str().unwrap_or_default().to_owned();
    assert!(
        message
            .contains("cannot resolve group version kind \"kro.run/v1alpha1, Kind=Base\": schema not found"),
        "{message}"
    );
    // Another definition brings the kind.
    harness
        .apply_json(&definition(
            "base",
            "Base",
            json!({"v": "string"}),
            json!({"up": "${m.data.v}"}),
            json!([map("m", "m", json!({"v": "${schema.spec.v}"}))]),
        ))
        .await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    harness.until("the nested instance is reconciled", async || harness.config_map("m").await).await?;
    harness.delete("kro.run/v1alpha1", "App", "i").await?;
    harness.gone("kro.run/v1alpha1", "App", "i").await?;
    harness.gone("v1", "ConfigMap", "m").await?;
    Ok(())
}

#[tokio::test]
async fn deleted_definition_waits_for_its_instances_or_drains_them() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&app(json!([map("a", "a", json!({"v": "x"}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    harness.delete(RGD.0, RGD.1, RGD.2).await?;
    let waiting = harness.definition("app", "Inactive").await?;
    let message =
        Harness::condition(&waiting, "ControllerReady")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("1 instances of App remain"), "{message}");
    assert!(harness.config_map("a").await?.is_some());
    harness.patch(RGD, json!({"spec": {"deletionPolicy": "Drain"}})).await?;
    harness.gone(RGD.0, RGD.1, RGD.2).await?;
    assert!(harness.config_map("a").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn old_revisions_are_collected() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    for n in 1..=7 {
        harness.apply_json(&app(json!([map("a", "a", json!({"v": n.to_string()}))]))).await?;
        let rgd = harness.definition("app", "Active").await?;
        assert_eq!(rgd["status"]["lastIssuedRevision"], n);
    }
    let mut numbers: Vec<i64> = harness
        .until("five are left", async || {
            let revisions = harness.list("internal.kro.run/v1alpha1", "GraphRevision", None).await?;
            let numbers: Vec<i64> =
                revisions.iter().filter_map(|revision| revision["spec"]["revision"].as_i64()).collect();
            Ok((numbers.len() == 5).then_some(numbers))
        })
        .await?;
    numbers.sort_unstable();
    assert_eq!(numbers, [3, 4, 5, 6, 7]);
    Ok(())
}
