//! Features that kro's users ask for and kro lacks, a test for each (composition.md, section 23). `dependsOn`, lifecycle,
//! deletion policies, the last good revision and kinds that appear later have theirs beside the feature.

use orlop_compose::plan::{Action, plan_definition, plan_instance};
use serde_json::{Value as Json, json};

use crate::harness::{Harness, app, definition, instance, map};

const KRO: &str = "kro.run/v1alpha1";

fn node<'i>(instance: &'i Json, id: &str) -> &'i Json {
    static NONE: Json = Json::Null;
    let nodes = instance["status"]["managedResources"].as_array();
    nodes.into_iter().flatten().find(|node| node["id"] == id).unwrap_or(&NONE)
}

#[tokio::test]
async fn waiting_node_names_the_child_the_value_and_since_when() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut gate = map("gate", "gate", json!({"open": "no"}));
    gate["readyWhen"] = json!(["${gate.data.open == 'yes'}"]);
    let mut secret = json!({"id": "secret", "template": {"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "s"}, "stringData": {"k": "hidden"}}});
    secret["readyWhen"] = json!(["${string(secret.data.k) == 'other'}"]);
    harness.apply_json(&app(json!([gate, secret]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let i = harness.instance("App", "i", "IN_PROGRESS").await?;
    let gate = node(&i, "gate").clone();
    assert_eq!(
        gate["message"],
        "waiting for node \"gate\": readyWhen condition evaluated to false: \"gate.data.open == 'yes'\" (waiting for \
         readiness): gate.data.open is \"no\""
    );
    assert_eq!(
        (gate["name"].as_str(), gate["state"].as_str()),
        (Some("gate"), Some("WAITING_FOR_READINESS"))
    );
    assert!(gate["since"].is_string() && gate["nextRetryTime"].is_null(), "{gate}");
    assert!(!i["status"].to_string().contains("aGlkZGVu") && !i["status"].to_string().contains("hidden"));
    // The beginning of a state outlives another pass; a plan tells it too.
    harness.patch((KRO, "App", "i"), json!({"metadata": {"labels": {"a": "b"}}})).await?;
    let plan = plan_instance(orlop_test::for_controllers(harness.client.clone()), &i).await?;
    let text = plan.now.join("\n");
    assert!(text.contains("gate WAITING_FOR_READINESS since ") && text.contains("next retry when"), "{text}");
    let i = harness.instance("App", "i", "IN_PROGRESS").await?;
    assert_eq!(node(&i, "gate")["since"], gate["since"]);
    Ok(())
}

#[tokio::test]
async fn list_of_variables_becomes_a_map_and_a_map_a_list() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let spec = json!({"env": "[]Variable", "tags": "map[string]string"});
    let mut rgd = definition(
        "function",
        "Function",
        spec,
        json!({"names": "${schema.spec.env.map(e, e.name)}"}),
        json!([
            {"id": "settings", "template": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "variables"},
                "data": "${schema.spec.env.transformMapEntry(i, e, {e.name: e.value})}"}},
            map("tags", "tags", json!({"list": "${schema.spec.tags.transformList(k, v, k + '=' + v).join(',')}"})),
        ]),
    );
    rgd["spec"]["schema"]["types"] =
        json!({"Variable": {"name": "string | required=true", "value": "string | default=\"\""}});
    harness.apply_json(&rgd).await?;
    harness.definition("function", "Active").await?;
    let env = json!([{"name": "LOG", "value": "debug"}, {"name": "MODE"}]);
    harness
        .apply_json(&instance("Function", "f", json!({"env": env, "tags": {"b": "2", "a": "1", "c": "3"}})))
        .await?;
    let f = harness.instance("Function", "f", "ACTIVE").await?;
    assert_eq!(f["status"]["names"], json!(["LOG", "MODE"]));
    let variables = harness.config_map("variables").await?.unwrap_or_default();
    assert_eq!(variables["data"], json!({"LOG": "debug", "MODE": ""}));
    // A list from a map has one order, so nothing is applied over and over (a known fault of kro).
    assert_eq!(harness.config_map("tags").await?.unwrap_or_default()["data"]["list"], "a=1,b=2,c=3");
    let version =
        harness.config_map("tags").await?.unwrap_or_default()["metadata"]["resourceVersion"].clone();
    harness.patch((KRO, "Function", "f"), json!({"metadata": {"labels": {"x": "y"}}})).await?;
    harness.instance("Function", "f", "ACTIVE").await?;
    assert_eq!(harness.config_map("tags").await?.unwrap_or_default()["metadata"]["resourceVersion"], version);
    // A variable that leaves the list leaves the map.
    harness.patch((KRO, "Function", "f"), json!({"spec": {"env": [{"name": "MODE", "value": "x"}]}})).await?;
    harness
        .until("the map follows", async || {
            let variables = harness.config_map("variables").await?.unwrap_or_default();
            Ok((variables["data"] == json!({"MODE": "x"})).then_some(()))
        })
        .await
}

#[tokio::test]
async fn values_come_from_other_instances_by_reference() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let network = definition(
        "network",
        "Network",
        json!({"cidr": "string"}),
        json!({"id": "${'net-' + m.data.cidr}"}),
        json!([map("m", "${schema.metadata.name}", json!({"cidr": "${schema.spec.cidr}"}))]),
    );
    harness.apply_json(&network).await?;
    harness.definition("network", "Active").await?;
    let other = json!({"id": "network", "readyWhen": ["${network.status.state == 'ACTIVE'}"], "externalRef": {
        "apiVersion": KRO, "kind": "Network", "metadata": {"name": "${schema.spec.network}"}}});
    let user = definition(
        "user",
        "User",
        json!({"network": "string"}),
        json!({}),
        json!([other, map("m", "user", json!({"network": "${network.status.id}"}))]),
    );
    harness.apply_json(&user).await?;
    harness.definition("user", "Active").await?;
    harness.apply_json(&instance("User", "u", json!({"network": "n"}))).await?;
    let u = harness.instance("User", "u", "IN_PROGRESS").await?;
    assert_eq!(node(&u, "network")["name"], "n", "the object waited for is named");
    harness.apply_json(&instance("Network", "n", json!({"cidr": "10"}))).await?;
    harness.instance("User", "u", "ACTIVE").await?;
    harness.patch((KRO, "Network", "n"), json!({"spec": {"cidr": "20"}})).await?;
    harness
        .until("a change arrives", async || {
            let user = harness.config_map("user").await?.unwrap_or_default();
            Ok((user["data"]["network"] == "net-20").then_some(()))
        })
        .await
}

#[tokio::test]
async fn plan_of_a_changed_definition_shows_its_effect_on_live_instances() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness
        .apply_json(&app(json!([
            map("a", "${schema.spec.name}", json!({"v": "1"})),
            map("b", "${schema.spec.name + '-b'}", json!({}))
        ])))
        .await?;
    harness.definition("app", "Active").await?;
    for name in ["one", "two"] {
        harness.apply_json(&instance("App", name, json!({"name": name}))).await?;
        harness.instance("App", name, "ACTIVE").await?;
    }
    let changed = app(json!([
        map("a", "${schema.spec.name}", json!({"v": "2"})),
        map("c", "${schema.spec.name + '-c'}", json!({}))
    ]));
    let planned = plan_definition(orlop_test::for_controllers(harness.client.clone()), &changed).await?;
    assert_eq!((planned.crd.action, planned.breaking.len()), (Action::Keep, 0), "{planned:?}");
    assert_eq!(planned.instances.len(), 2);
    for plan in &planned.instances {
        let of = |action: Action| plan.changes.iter().filter(|change| change.action == action).count();
        assert_eq!((of(Action::Create), of(Action::Change), of(Action::Delete)), (1, 1, 1), "{plan:?}");
        let fields: Vec<&String> = plan.changes.iter().flat_map(|change| &change.fields).collect();
        assert!(fields.iter().any(|field| field.as_str() == "data.v: \"1\" -> \"2\""), "{fields:?}");
    }
    assert_eq!(
        harness.config_map("one").await?.unwrap_or_default()["data"]["v"],
        "1",
        "a plan writes nothing"
    );
    assert!(harness.config_map("one-c").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn plan_of_a_changed_schema_tells_breaking_changes_and_invalid_instances() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let resources = json!([map("a", "${schema.spec.name}", json!({"v": "1"}))]);
    let with = |spec: Json| definition("app", "App", spec, json!({}), resources.clone());
    let client = || orlop_test::for_controllers(harness.client.clone());
    let planned = plan_definition(client(), &with(json!({"name": "string"}))).await?;
    assert_eq!((planned.crd.action, planned.instances.len()), (Action::Create, 0), "nothing is there yet");
    harness.apply_json(&with(json!({"name": "string"}))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    let changed =
        with(json!({"name": "string", "size": "integer | default=3", "zone": "string | required=true"}));
    let planned = plan_definition(client(), &changed).await?;
    assert_eq!(planned.crd.action, Action::Change);
    let fields = planned.crd.fields.join("\n");
    assert!(fields.contains("schema.spec.properties.size: null -> "), "{fields}");
    assert_eq!(planned.breaking, ["spec.zone: Required property zone was added without default"]);
    let now = planned.instances[0].now.join("\n");
    assert!(now.contains("invalid under the new schema: spec.zone: Required value"), "{now}");
    // A default of the new schema is what expressions see.
    let mut reads = changed;
    reads["spec"]["resources"][0]["template"]["data"]["v"] = json!("${string(schema.spec.size)}");
    let planned = plan_definition(client(), &reads).await?;
    assert_eq!(planned.instances[0].changes[0].action, Action::Change);
    assert!(planned.instances[0].changes[0].fields.contains(&"data.v: \"1\" -> \"3\"".to_owned()));
    Ok(())
}

#[tokio::test]
async fn plan_tells_what_is_retained_refused_and_made_in_a_namespace_to_come() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut kept = map("kept", "kept", json!({}));
    kept["lifecycle"] = json!({"onDelete": "Retain"});
    harness.apply_json(&app(json!([kept]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    harness
        .apply_json(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs",
        "labels": {"applyset.kubernetes.io/part-of": "applyset-other-v1"}}}))
        .await?;
    let mut inside = map("inside", "inside", json!({"v": "${space.metadata.name}"}));
    inside["template"]["metadata"]["namespace"] = json!("${space.metadata.name}");
    let mut outside = map("outside", "outside", json!({}));
    outside["template"]["metadata"]["namespace"] = json!("nowhere");
    let space = json!({"id": "space", "template": {
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "space"}}});
    let changed = app(json!([space, inside, outside, map("theirs", "theirs", json!({}))]));
    let planned = plan_definition(orlop_test::for_controllers(harness.client.clone()), &changed).await?;
    let actions: Vec<(Action, &str)> =
        planned.instances[0].changes.iter().map(|change| (change.action, change.object.as_str())).collect();
    assert_eq!(
        actions,
        [
            (Action::Create, "Namespace space"),
            (Action::Create, "ConfigMap space/inside"),
            (Action::Refuse, "ConfigMap nowhere/outside"),
            (Action::Refuse, "ConfigMap default/theirs"),
            (Action::Retain, "ConfigMap default/kept"),
        ],
        "{planned:?}"
    );
    Ok(())
}

#[tokio::test]
async fn managed_objects_and_their_owner_can_be_listed_by_labels() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&app(json!([map("a", "a", json!({})), map("b", "b", json!({}))]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let i = harness.instance("App", "i", "ACTIVE").await?;
    let listed: Vec<(&Json, &Json)> = i["status"]["managedResources"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|node| (&node["kind"], &node["name"]))
        .collect();
    assert_eq!(listed, [(&json!("ConfigMap"), &json!("a")), (&json!("ConfigMap"), &json!("b"))]);
    let selector = "kro.run/instance-kind%3DApp%2Ckro.run/instance-name%3Di";
    let found = harness.call("GET", &format!("/api/v1/configmaps?labelSelector={selector}"), None).await?;
    assert_eq!(found["items"].as_array().map(Vec::len), Some(2));
    Ok(())
}

#[tokio::test]
async fn graph_without_resources_is_active() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness
        .apply_json(&definition(
            "empty",
            "Empty",
            json!({"any": "object"}),
            json!({"seen": "${schema.spec.any}"}),
            json!([]),
        ))
        .await?;
    harness.definition("empty", "Active").await?;
    harness.apply_json(&instance("Empty", "e", json!({"any": {"deep": [1, {"x": null}]}}))).await?;
    let e = harness.instance("Empty", "e", "ACTIVE").await?;
    assert_eq!(e["status"]["seen"]["deep"][0], 1);
    Ok(())
}
