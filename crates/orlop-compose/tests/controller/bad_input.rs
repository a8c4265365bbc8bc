//! Bad input and bad neighbours: each must be told, mended when it can be, and never spread.

use serde_json::{Value as Json, json};

use crate::harness::{Harness, app, definition, instance, map};

const KRO: &str = "kro.run/v1alpha1";
const CRD: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");

fn message(instance: &Json) -> String {
    Harness::condition(instance, "Ready")["message"].as_str().unwrap_or_default().to_owned()
}

fn widget() -> Json {
    json!({
        "apiVersion": CRD.0, "kind": CRD.1, "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}]}})
}

fn with_widget() -> Json {
    json!([
        {"id": "widget", "template": {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"},
            "spec": {"size": "${size(schema.spec.name)}"}}},
        map("other", "other", json!({"v": "${schema.spec.name}"})),
    ])
}

#[tokio::test]
async fn crd_that_disappears_holds_only_its_node_and_comes_back() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&widget()).await?;
    harness.apply_json(&app(with_widget())).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "abc"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    harness.delete(CRD.0, CRD.1, "widgets.example.com").await?;
    let rgd = harness
        .until("the definition says what is missing", async || {
            let rgd = harness.get(KRO, "ResourceGraphDefinition", "app").await?.unwrap_or_default();
            Ok((rgd["status"]["state"] == "Inactive").then_some(rgd))
        })
        .await?;
    let text = Harness::condition(&rgd, "GraphAccepted")["message"].as_str().unwrap_or_default().to_owned();
    assert!(text.contains("\"example.com/v1, Kind=Widget\": schema not found"), "{text}");
    // The last good revision goes on with the nodes that can be.
    harness.patch((KRO, "App", "i"), json!({"spec": {"name": "abcd"}})).await?;
    harness
        .until("the other node follows", async || {
            let other = harness.config_map("other").await?.unwrap_or_default();
            Ok((other["data"]["v"] == "abcd").then_some(()))
        })
        .await?;
    harness.apply_json(&widget()).await?;
    harness.definition("app", "Active").await?;
    harness.instance("App", "i", "ACTIVE").await?;
    let w = harness.get("example.com/v1", "Widget", "w").await?.unwrap_or_default();
    assert_eq!(w["spec"]["size"], 4);
    // Deletion skips a kind that is gone.
    harness.delete(CRD.0, CRD.1, "widgets.example.com").await?;
    harness.gone(CRD.0, CRD.1, "widgets.example.com").await?;
    harness.delete(KRO, "App", "i").await?;
    harness.gone(KRO, "App", "i").await?;
    assert!(harness.config_map("other").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn changed_crd_of_a_template_is_checked_again() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&widget()).await?;
    harness.apply_json(&app(with_widget())).await?;
    harness.definition("app", "Active").await?;
    let mut changed = widget();
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"] =
        json!({"type": "string"});
    harness.apply_json(&changed).await?;
    let rgd = harness
        .until("the type no longer fits", async || {
            let rgd = harness.get(KRO, "ResourceGraphDefinition", "app").await?.unwrap_or_default();
            Ok((rgd["status"]["state"] == "Inactive").then_some(rgd))
        })
        .await?;
    let text = Harness::condition(&rgd, "GraphAccepted")["message"].as_str().unwrap_or_default().to_owned();
    assert!(text.contains("type mismatch in resource \"widget\" at path \"spec.size\""), "{text}");
    harness.apply_json(&widget()).await?;
    harness.definition("app", "Active").await?;
    Ok(())
}

#[tokio::test]
async fn expression_that_fails_at_run_time_names_itself_and_spares_other_nodes() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let spec = json!({"n": "integer", "optional": "string"});
    let rgd = definition(
        "app",
        "App",
        spec,
        json!({}),
        json!([
            map("divided", "divided", json!({"v": "${string(10 / schema.spec.n)}"})),
            map("absent", "absent", json!({"v": "${schema.spec.optional}"})),
            map("fine", "fine", json!({})),
        ]),
    );
    harness.apply_json(&rgd).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"n": 0}))).await?;
    let i = harness.instance("App", "i", "ERROR").await?;
    let text = message(&i);
    assert!(
        text.contains("node \"divided\": expression \"string(10 / schema.spec.n)\" at path \"data.v\": divi"),
        "{text}"
    );
    // A field that the user leaves out never comes by waiting (a known fault of kro).
    assert!(
        text.contains("node \"absent\": expression \"schema.spec.optional\" at path \"data.v\""),
        "{text}"
    );
    assert!(harness.config_map("fine").await?.is_some());
    harness.patch((KRO, "App", "i"), json!({"spec": {"n": 5, "optional": "here"}})).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    assert_eq!(harness.config_map("divided").await?.unwrap_or_default()["data"]["v"], "2");
    Ok(())
}

#[tokio::test]
async fn terminating_child_is_waited_for_and_made_again() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut held = map("held", "held", json!({"v": "${schema.spec.value}"}));
    held["template"]["metadata"]["finalizers"] = json!(["example.com/hold"]);
    harness.apply_json(&app(json!([held, map("after", "after", json!({"v": "${held.data.v}"}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    let first = harness.config_map("held").await?.unwrap_or_default()["metadata"]["uid"].clone();
    harness.delete("v1", "ConfigMap", "held").await?;
    harness.patch((KRO, "App", "i"), json!({"spec": {"value": "two"}})).await?;
    let i = harness.instance("App", "i", "IN_PROGRESS").await?;
    let ready = Harness::condition(&i, "ResourcesReady");
    assert_eq!(ready["reason"], "ResourceDeleting");
    assert!(ready["message"].as_str().unwrap_or_default().contains("resource \"default/held\""), "{ready}");
    assert_eq!(harness.config_map("after").await?.unwrap_or_default()["data"]["v"], "one", "dependents wait");
    harness.patch(("v1", "ConfigMap", "held"), json!({"metadata": {"finalizers": null}})).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    let held = harness.config_map("held").await?.unwrap_or_default();
    assert!(held["metadata"]["uid"] != first && held["data"]["v"] == "two");
    assert_eq!(harness.config_map("after").await?.unwrap_or_default()["data"]["v"], "two");
    Ok(())
}

#[tokio::test]
async fn refusal_by_admission_is_told_and_tried_again() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-maps"},
        "spec": {"failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}]},
            "validations": [{"expression": "object.metadata.name != 'a'", "message": "no map of this name"}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-maps"}, "spec": {"policyName": "no-maps", "validationActions": ["Deny"]}});
    harness
        .call("POST", &format!("{policies}/validatingadmissionpolicies"), Some(("application/json", &policy)))
        .await?;
    harness
        .call(
            "POST",
            &format!("{policies}/validatingadmissionpolicybindings"),
            Some(("application/json", &binding)),
        )
        .await?;
    harness.apply_json(&app(json!([map("a", "a", json!({})), map("b", "b", json!({}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let i = harness.instance("App", "i", "ERROR").await?;
    assert!(message(&i).contains("no map of this name"), "{}", message(&i));
    assert!(harness.config_map("b").await?.is_some());
    harness.call("DELETE", &format!("{policies}/validatingadmissionpolicybindings/no-maps"), None).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    Ok(())
}

#[tokio::test]
async fn object_that_cannot_be_changed_stays_in_the_status() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut parts = map("parts", "${'part-' + name}", json!({"v": "${schema.spec.value}"}));
    parts["forEach"] = json!([{"name": "${schema.spec.names}"}]);
    parts["template"]["immutable"] = json!(true);
    let spec = json!({"value": "string", "names": "[]string"});
    harness
        .apply_json(&definition("set", "Set", spec, json!({"count": "${parts.size()}"}), json!([parts])))
        .await?;
    harness.definition("set", "Active").await?;
    harness.apply_json(&instance("Set", "s", json!({"value": "1", "names": ["a", "b"]}))).await?;
    harness.instance("Set", "s", "ACTIVE").await?;
    harness.apply_json(&instance("Set", "s", json!({"value": "2", "names": ["a", "b", "c"]}))).await?;
    let s = harness.instance("Set", "s", "ERROR").await?;
    assert!(message(&s).contains("field is immutable"), "{s}");
    assert_eq!(s["status"]["count"], 3, "the new one, and two that could not be changed");
    // All that is wanted exists, so what is not wanted goes all the same.
    harness.apply_json(&instance("Set", "s", json!({"value": "3", "names": ["a", "c"]}))).await?;
    harness.gone("v1", "ConfigMap", "part-b").await?;
    // The place of an object is not cleared before the other one is there.
    harness.apply_json(&instance("Set", "s", json!({"value": "3", "names": ["a", "NO"]}))).await?;
    harness
        .until("the new item is refused", async || {
            let s = harness.get(KRO, "Set", "s").await?.unwrap_or_default();
            Ok(message(&s).contains("part-NO").then_some(()))
        })
        .await?;
    assert!(harness.config_map("part-c").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn child_fought_over_by_another_writer_is_won_back() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&app(json!([map("a", "a", json!({"v": "ours"}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    for round in 0..5 {
        let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"v": format!("theirs {round}")}});
        harness.apply_json(&theirs).await?;
        harness
            .until("the field is ours again", async || {
                let a = harness.config_map("a").await?.unwrap_or_default();
                Ok((a["data"]["v"] == "ours").then_some(()))
            })
            .await?;
    }
    // Stripped of its labels it is found by name, and marked again.
    harness.patch(("v1", "ConfigMap", "a"), json!({"metadata": {"labels": null}})).await?;
    harness
        .until("it is marked again", async || {
            let a = harness.config_map("a").await?.unwrap_or_default();
            Ok((a["metadata"]["labels"]["kro.run/owned"] == "true").then_some(()))
        })
        .await
}

#[tokio::test]
async fn bad_definition_blocks_no_other() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    for n in 0..5 {
        let bad = definition(
            &format!("bad{n}"),
            &format!("Bad{n}"),
            json!({"x": "nonsense"}),
            json!({}),
            json!([]),
        );
        harness.apply_json(&bad).await?;
    }
    harness.apply_json(&app(json!([map("a", "a", json!({}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    let bad = harness.definition("bad3", "Inactive").await?;
    let text = Harness::condition(&bad, "GraphAccepted")["message"].as_str().unwrap_or_default().to_owned();
    assert!(text.contains("unknown type: nonsense"), "{text}");
    harness.delete(KRO, "ResourceGraphDefinition", "bad3").await?;
    harness.gone(KRO, "ResourceGraphDefinition", "bad3").await?;
    Ok(())
}

#[tokio::test]
async fn server_refuses_definitions_of_the_wrong_shape() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let refused = async |change: fn(&mut Json), text: &str| {
        let mut rgd = app(json!([map("a", "a", json!({}))]));
        change(&mut rgd);
        match harness.apply_json(&rgd).await {
            Ok(_) => panic!("accepted, though {text}"),
            Err(error) => {
                let error = format!("{error:#}");
                assert!(error.contains(text), "{error}");
            }
        }
    };
    refused(|rgd| rgd["spec"]["schema"]["kind"] = json!("lower"), "spec.schema.kind").await;
    refused(|rgd| rgd["spec"]["schema"]["apiVersion"] = json!("1"), "spec.schema.apiVersion").await;
    refused(|rgd| rgd["spec"]["schema"]["scope"] = json!("Galaxy"), "Unsupported value: \"Galaxy\"").await;
    refused(|rgd| rgd["spec"]["schema"]["shortNames"] = json!(["Upper"]), "spec.schema.shortNames[0]").await;
    refused(|rgd| rgd["spec"]["schema"]["categories"] = json!(["a", "a"]), "duplicate entries").await;
    let both = |rgd: &mut Json| {
        rgd["spec"]["resources"][0]["externalRef"] =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}});
    };
    refused(both, "exactly one of template or externalRef must be provided").await;
    harness.apply_json(&app(json!([]))).await?;
    refused(|rgd| rgd["spec"]["schema"]["kind"] = json!("Other"), "kind is immutable").await;
    refused(|rgd| rgd["spec"]["schema"]["scope"] = json!("Cluster"), "scope is immutable").await;
    refused(|rgd| rgd["spec"]["schema"]["group"] = json!("example.com"), "group is immutable").await;
    Ok(())
}

#[tokio::test]
async fn tampered_inventory_blocks_deletion_until_it_is_repaired() -> anyhow::Result<()> {
    let mut harness = Harness::start().await?;
    harness.apply_json(&app(json!([map("a", "a", json!({}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    let at = (KRO, "App", "i");
    let kinds = |value: &str| json!({"metadata": {"annotations": {"applyset.kubernetes.io/contains-group-kinds": value}}});
    // While no controller runs, which would repair it first.
    harness.replace(tokio::spawn(async {}));
    harness.patch(at, kinds("Secret")).await?;
    harness.delete(at.0, at.1, at.2).await?;
    harness.restart();
    harness
        .until("deletion is blocked", async || {
            let i = harness.get(at.0, at.1, at.2).await?.unwrap_or_default();
            let text =
                Harness::condition(&i, "ResourcesReady")["message"].as_str().unwrap_or_default().to_owned();
            Ok(text.starts_with("deletion blocked: validate deletion inventory: ").then_some(()))
        })
        .await?;
    assert!(harness.config_map("a").await?.is_some());
    harness.patch(at, kinds("ConfigMap")).await?;
    harness.gone(at.0, at.1, at.2).await?;
    assert!(harness.config_map("a").await?.is_none());
    Ok(())
}
