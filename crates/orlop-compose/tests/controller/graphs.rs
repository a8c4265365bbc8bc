//! includeWhen, readyWhen, forEach, external references, data that comes later.

use serde_json::{Value as Json, json};

use crate::harness::{Harness, app, definition, instance, map};

#[tokio::test]
async fn include_when_creates_and_prunes_nodes_and_their_dependents() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut extra = map("extra", "extra", json!({"v": "x"}));
    extra["includeWhen"] = json!(["${schema.spec.value == 'two'}"]);
    let resources = json!([
        extra,
        map("after", "after", json!({"v": "${extra.data.v}"})),
        map("base", "base", json!({"v": "b"}))
    ]);
    harness.apply_json(&app(resources)).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    assert!(harness.config_map("extra").await?.is_none() && harness.config_map("base").await?.is_some());
    harness.patch(("kro.run/v1alpha1", "App", "i"), json!({"spec": {"value": "two"}})).await?;
    harness.until("dependents appear", async || harness.config_map("after").await).await?;
    harness.patch(("kro.run/v1alpha1", "App", "i"), json!({"spec": {"value": "one"}})).await?;
    harness.gone("v1", "ConfigMap", "after").await?;
    harness.gone("v1", "ConfigMap", "extra").await?;
    let i = harness.instance("App", "i", "ACTIVE").await?;
    let skipped = i["status"]["managedResources"].as_array().into_iter().flatten();
    let states: Vec<&Json> =
        skipped.filter(|node| node["state"] == "SKIPPED").map(|node| &node["id"]).collect();
    assert_eq!(states, ["extra", "after"]);
    Ok(())
}

#[tokio::test]
async fn ready_when_holds_dependents_and_the_instance() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut gate = map("gate", "gate", json!({"fixed": "x"}));
    gate["readyWhen"] = json!(["${gate.data.open == 'yes'}"]);
    harness
        .apply_json(&app(json!([gate, map("after", "after", json!({"v": "${gate.data.fixed}"}))])))
        .await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let i = harness.instance("App", "i", "IN_PROGRESS").await?;
    let ready = Harness::condition(&i, "ResourcesReady");
    let message = ready["message"].as_str().unwrap_or_default();
    assert!(message.contains("node \"gate\"") && message.contains("gate.data.open == 'yes'"), "{message}");
    assert!(message.contains("unresolved"), "{message}");
    assert!(harness.config_map("after").await?.is_none());
    // Somebody else opens the gate; its own field stays.
    harness.patch(("v1", "ConfigMap", "gate"), json!({"data": {"open": "yes"}})).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    assert!(harness.config_map("after").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn collection_grows_shrinks_and_feeds_its_dependents() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut items = map("parts", "${schema.spec.name + '-' + x + '-' + y}", json!({"v": "${x}"}));
    items["forEach"] = json!([{"x": "${schema.spec.list}"}, {"y": "${['p', 'q']}"}]);
    let resources = json!([
        items,
        map(
            "sum",
            "sum",
            json!({"count": "${string(parts.size())}", "names": "${parts.map(i, i.metadata.name).join(',')}"})
        )
    ]);
    let rgd = definition(
        "set",
        "Set",
        json!({"name": "string", "list": "[]string"}),
        json!({"count": "${parts.size()}"}),
        resources,
    );
    harness.apply_json(&rgd).await?;
    harness.definition("set", "Active").await?;
    harness.apply_json(&instance("Set", "s", json!({"name": "s", "list": ["a", "b"]}))).await?;
    let s = harness.instance("Set", "s", "ACTIVE").await?;
    assert_eq!(s["status"]["count"], 4);
    let sum = harness.config_map("sum").await?.unwrap_or_default();
    assert_eq!(sum["data"]["names"], "s-a-p,s-a-q,s-b-p,s-b-q");
    let second = harness.config_map("s-a-q").await?.unwrap_or_default();
    assert_eq!(second["metadata"]["labels"]["kro.run/collection-index"], "1");
    assert_eq!(second["metadata"]["labels"]["kro.run/collection-size"], "4");
    harness.patch(("kro.run/v1alpha1", "Set", "s"), json!({"spec": {"list": ["b"]}})).await?;
    harness.gone("v1", "ConfigMap", "s-a-p").await?;
    harness.gone("v1", "ConfigMap", "s-a-q").await?;
    let rest = harness
        .until("labels follow", async || {
            let rest = harness.config_map("s-b-q").await?.unwrap_or_default();
            Ok((rest["metadata"]["labels"]["kro.run/collection-size"] == "2").then_some(rest))
        })
        .await?;
    assert_eq!(rest["metadata"]["labels"]["kro.run/collection-index"], "1");
    // An item that somebody deletes comes back.
    harness.delete("v1", "ConfigMap", "s-b-q").await?;
    harness.until("drift is corrected", async || harness.config_map("s-b-q").await).await?;
    harness.patch(("kro.run/v1alpha1", "Set", "s"), json!({"spec": {"list": []}})).await?;
    harness.gone("v1", "ConfigMap", "s-b-p").await?;
    let s = harness.instance("Set", "s", "ACTIVE").await?;
    assert_eq!(s["status"]["count"], 0);
    Ok(())
}

#[tokio::test]
async fn collection_over_the_limit_creates_nothing() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut items = map("parts", "${'i-' + string(x) + '-' + string(y)}", json!({}));
    items["forEach"] = json!([{"x": "${lists.range(34)}"}, {"y": "${lists.range(34)}"}]);
    harness.apply_json(&app(json!([items]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let i = harness.instance("App", "i", "ERROR").await?;
    let message = Harness::condition(&i, "Ready")["message"].as_str().unwrap_or_default().to_owned();
    assert!(
        message.contains("collection size of 1156 is over the maximum collection size of 1000"),
        "{message}"
    );
    assert!(
        harness
            .list("v1", "ConfigMap", None)
            .await?
            .iter()
            .all(|map| map["metadata"]["labels"]["kro.run/owned"].is_null())
    );
    Ok(())
}

#[tokio::test]
async fn external_references_are_followed_by_name_and_selector() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let resources = json!([
        {"id": "input", "externalRef": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${schema.spec.name}"}}},
        {"id": "others", "externalRef": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "namespace": "default", "selector": {"matchLabels": {"team": "${schema.spec.value}"}}}}},
        map("out", "out", json!({"v": "${input.data.v}", "n": "${string(others.size())}"})),
    ]);
    harness.apply_json(&app(resources)).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "input"}))).await?;
    let i = harness.instance("App", "i", "IN_PROGRESS").await?;
    let message = Harness::condition(&i, "Ready")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("waiting for external reference \"input\": not found"), "{message}");
    let input = |v: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "input"}, "data": {"v": v}});
    harness.apply_json(&input("1")).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    harness.apply_json(&input("2")).await?;
    let data = async |v: &str, n: &str| {
        harness
            .until("external change arrives", async || {
                let out = harness.config_map("out").await?.unwrap_or_default();
                Ok((out["data"]["v"] == v && out["data"]["n"] == n).then_some(()))
            })
            .await
    };
    data("2", "0").await?;
    harness.apply_json(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "labels": {"team": "one"}}})).await?;
    data("2", "1").await?;
    harness.patch(("v1", "ConfigMap", "x"), json!({"metadata": {"labels": {"team": "other"}}})).await?;
    data("2", "0").await?;
    let input = harness.config_map("input").await?.unwrap_or_default();
    assert!(input["metadata"]["labels"].is_null(), "external objects are never written");
    // Deletion needs no external object.
    harness.delete("v1", "ConfigMap", "input").await?;
    harness.delete("kro.run/v1alpha1", "App", "i").await?;
    harness.gone("kro.run/v1alpha1", "App", "i").await?;
    assert!(harness.config_map("out").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn depends_on_orders_without_reading() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut gate = map("gate", "gate", json!({}));
    gate["readyWhen"] = json!(["${gate.?data.?open.hasValue()}"]);
    let mut hard = map("hard", "hard", json!({}));
    hard["dependsOn"] = json!(["gate"]);
    let mut soft = map("soft", "soft", json!({}));
    soft["dependsOn"] = json!([{"id": "gate", "soft": true}]);
    harness.apply_json(&app(json!([hard, soft, gate]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "IN_PROGRESS").await?;
    assert!(harness.config_map("hard").await?.is_none() && harness.config_map("soft").await?.is_some());
    harness.patch(("v1", "ConfigMap", "gate"), json!({"data": {"open": "yes"}})).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    assert!(harness.config_map("hard").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn dynamic_keys_and_omitted_fields_shape_the_object() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let data =
        json!({"${schema.spec.name}": "key", "gone": "${schema.spec.value == 'one' ? omit() : 'there'}"});
    let from_list = json!({"id": "list", "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "list"},
        "data": "${[{'n': 'A', 'v': '1'}, {'n': 'B', 'v': '2'}].transformMapEntry(i, e, {e.n: e.v})}"}});
    harness.apply_json(&app(json!([map("keys", "keys", data), from_list]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "chosen"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    assert_eq!(harness.config_map("keys").await?.unwrap_or_default()["data"], json!({"chosen": "key"}));
    assert_eq!(harness.config_map("list").await?.unwrap_or_default()["data"], json!({"A": "1", "B": "2"}));
    Ok(())
}

#[tokio::test]
async fn custom_conditions_replace_the_built_in_ones() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut rgd = app(json!([map("a", "a", json!({"v": "${schema.spec.value}"}))]));
    rgd["spec"]["schema"]["status"] = json!({"conditions": [
        "${runtime.newCondition({type: 'Two', status: a.data.v == 'two' ? 'True' : 'False', reason: 'Value', message: a.data.v})}",
        "${runtime.newCondition({type: 'Seen', status: runtime.condition(schema, 'GraphResolved').status})}"]});
    harness.apply_json(&rgd).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let i = harness.instance("App", "i", "ACTIVE").await?;
    let types: Vec<&Json> =
        i["status"]["conditions"].as_array().into_iter().flatten().map(|c| &c["type"]).collect();
    assert_eq!(types, ["Two", "Seen"]);
    assert_eq!(Harness::condition(&i, "Two")["status"], "False");
    assert_eq!(Harness::condition(&i, "Seen")["status"], "True");
    harness.patch(("kro.run/v1alpha1", "App", "i"), json!({"spec": {"value": "two"}})).await?;
    harness
        .until("conditions follow", async || {
            let i = harness.instance("App", "i", "ACTIVE").await?;
            Ok((Harness::condition(&i, "Two")["status"] == "True").then_some(()))
        })
        .await
}

#[tokio::test]
async fn text_of_instances_is_never_evaluated() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&app(json!([map("a", "a", json!({"v": "${schema.spec.name}"}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "${a.metadata.uid}"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    assert_eq!(harness.config_map("a").await?.unwrap_or_default()["data"]["v"], "${a.metadata.uid}");
    Ok(())
}
