//! Behaviour that kro's own suites assert and no other test here does, in the order of composition.md, section 20.

use orlop_compose::{Metrics, Settings};
use serde_json::{Value as Json, json};

use crate::harness::{Harness, app, definition, instance, map, spawn_measured};

const KRO: &str = "kro.run/v1alpha1";
const CRD: (&str, &str) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
const REVISIONS: (&str, &str) = ("internal.kro.run/v1alpha1", "GraphRevision");

fn message(object: &Json, kind: &str) -> String {
    Harness::condition(object, kind)["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn labels_and_applyset_annotations_are_kro_s() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let service = json!({"id": "service", "template": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 80}]}}});
    let mut extra = map("extra", "extra", json!({}));
    extra["template"] = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "extra"}});
    extra["includeWhen"] = json!(["${schema.spec.value == 'two'}"]);
    harness
        .apply_json(&app(json!([map("a", "a", json!({"pi": "${string(3.14)}"})), service, extra])))
        .await?;
    let rgd = harness.definition("app", "Active").await?;
    let mut i = instance("App", "i", json!({"name": "n"}));
    i["metadata"]["labels"] = json!({"mine": "kept"});
    i["metadata"]["annotations"] = json!({"note": "kept"});
    harness.apply_json(&i).await?;
    let i = harness.instance("App", "i", "ACTIVE").await?;
    let (labels, annotations) = (&i["metadata"]["labels"], &i["metadata"]["annotations"]);
    assert_eq!(labels["kro.run/resource-graph-definition-id"], rgd["metadata"]["uid"]);
    assert_eq!(labels["kro.run/resource-graph-definition-name"], "app");
    assert_eq!((&labels["kro.run/owned"], &labels["mine"]), (&json!("true"), &json!("kept")));
    assert!(labels["app.kubernetes.io/managed-by"].is_null());
    let id = labels["applyset.kubernetes.io/id"].as_str().unwrap_or_default();
    assert!(id.starts_with("applyset-") && id.ends_with("-v1"));
    assert!(annotations["applyset.kubernetes.io/tooling"].as_str().unwrap_or_default().starts_with("kro/"));
    assert_eq!(annotations["applyset.kubernetes.io/contains-group-kinds"], "ConfigMap,Service");
    assert_eq!(annotations["applyset.kubernetes.io/additional-namespaces"], "");
    assert_eq!(annotations["note"], "kept");
    let a = harness.config_map("a").await?.unwrap_or_default();
    let labels = &a["metadata"]["labels"];
    for (label, value) in [
        ("applyset.kubernetes.io/part-of", id),
        ("kro.run/instance-name", "i"),
        ("kro.run/instance-namespace", "default"),
        ("kro.run/instance-group", "kro.run"),
        ("kro.run/instance-version", "v1alpha1"),
        ("kro.run/instance-kind", "App"),
        ("kro.run/node-id", "a"),
        ("app.kubernetes.io/managed-by", "kro"),
    ] {
        assert_eq!(labels[label], value, "{label}");
    }
    assert_eq!(labels["kro.run/instance-id"], i["metadata"]["uid"]);
    assert!(labels["kro.run/resource-graph-definition-id"].is_null());
    let managers = a["metadata"]["managedFields"].as_array().into_iter().flatten();
    let ours: Vec<&Json> = managers.filter(|entry| entry["manager"] == "kro.run/applyset").collect();
    assert_eq!(ours.iter().map(|entry| &entry["operation"]).collect::<Vec<_>>(), ["Apply"]);
    // The kinds of the inventory grow and shrink with the graph.
    let kinds = async |value: &str, kinds: &str| {
        harness.patch((KRO, "App", "i"), json!({"spec": {"value": value}})).await?;
        harness
            .until("the inventory follows", async || {
                let i = harness.instance("App", "i", "ACTIVE").await?;
                let found = &i["metadata"]["annotations"]["applyset.kubernetes.io/contains-group-kinds"];
                Ok((found == kinds).then_some(()))
            })
            .await
    };
    kinds("two", "ConfigMap,Secret,Service").await?;
    kinds("one", "ConfigMap,Service").await?;
    assert!(harness.get("v1", "Secret", "extra").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn instances_of_one_name_under_two_kinds_and_namespaces_do_not_meet() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness
        .apply_json(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}))
        .await?;
    for kind in ["First", "Second"] {
        let lower = kind.to_lowercase();
        let nodes = json!([map("m", &format!("${{schema.metadata.name + '-{lower}'}}"), json!({"v": kind}))]);
        harness.apply_json(&definition(&lower, kind, json!({}), json!({}), nodes)).await?;
        harness.definition(&lower, "Active").await?;
        for namespace in ["default", "other"] {
            let mut same = instance(kind, "same", json!({}));
            same["metadata"]["namespace"] = json!(namespace);
            harness.apply_json(&same).await?;
        }
    }
    let maps = async || -> anyhow::Result<Vec<String>> {
        let mut found = harness.list("v1", "ConfigMap", None).await?;
        found.extend(harness.list("v1", "ConfigMap", Some("other")).await?);
        let owned = found.iter().filter(|map| map["metadata"]["labels"]["kro.run/owned"] == "true");
        let mut names: Vec<String> = owned
            .map(|map| {
                format!("{}/{}", map["metadata"]["namespace"], map["metadata"]["name"]).replace('"', "")
            })
            .collect();
        names.sort();
        Ok(names)
    };
    let all = ["default/same-first", "default/same-second", "other/same-first", "other/same-second"];
    harness.until("all four are made", async || Ok((maps().await? == all).then_some(()))).await?;
    harness.delete("v1", "ConfigMap", "same-first").await?;
    harness.until("drift is repaired", async || Ok((maps().await? == all).then_some(()))).await?;
    harness.delete(KRO, "First", "same").await?;
    harness.gone(KRO, "First", "same").await?;
    assert_eq!(maps().await?, all[1..]);
    Ok(())
}

#[tokio::test]
async fn include_when_backed_by_a_resource_waits_creates_and_prunes() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut extra = map("extra", "extra", json!({}));
    extra["includeWhen"] = json!(["${base.data.?more.orValue('') == 'yes'}"]);
    let mut strict = map("strict", "strict", json!({}));
    strict["includeWhen"] = json!(["${base.data.more == 'yes'}"]);
    let resources = json!([
        map("base", "base", json!({"v": "x"})),
        extra,
        strict,
        map("after", "after", json!({"n": "${strict.metadata.name}"}))
    ]);
    harness.apply_json(&app(resources)).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    // A missing field of a resource is pending, not false.
    let i = harness.instance("App", "i", "IN_PROGRESS").await?;
    assert!(message(&i, "ResourcesReady").contains("includeWhen"), "{}", message(&i, "ResourcesReady"));
    let set = async |value: &str| {
        harness.patch(("v1", "ConfigMap", "base"), json!({"data": {"more": value}})).await
    };
    set("yes").await?;
    harness.instance("App", "i", "ACTIVE").await?;
    assert!(harness.config_map("extra").await?.is_some() && harness.config_map("after").await?.is_some());
    set("no").await?;
    for name in ["extra", "strict", "after"] {
        harness.gone("v1", "ConfigMap", name).await?;
    }
    harness.instance("App", "i", "ACTIVE").await?;
    Ok(())
}

#[tokio::test]
async fn collections_wait_for_every_item_and_chain() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut first = map("first", "${'f-' + x}", json!({"x": "${x}"}));
    first["forEach"] = json!([{"x": "${schema.spec.list}"}]);
    first["readyWhen"] = json!(["${each.data.?ready.orValue('') == 'yes'}"]);
    let mut second = map("second", "${'s-' + m.data.x}", json!({"of": "${m.metadata.name}"}));
    second["forEach"] = json!([{"m": "${first}"}]);
    let rgd = definition(
        "bundle",
        "Bundle",
        json!({"list": "[]string"}),
        json!({"first": "${first.size()}", "second": "${second.size()}"}),
        json!([second, first]),
    );
    harness.apply_json(&rgd).await?;
    harness.definition("bundle", "Active").await?;
    harness.apply_json(&instance("Bundle", "s", json!({"list": ["a", "b", "c"]}))).await?;
    harness.instance("Bundle", "s", "IN_PROGRESS").await?;
    let ready =
        async |name: &str| harness.patch(("v1", "ConfigMap", name), json!({"data": {"ready": "yes"}})).await;
    ready("f-a").await?;
    ready("f-b").await?;
    let s = harness
        .until("the third is named", async || {
            let s = harness.instance("Bundle", "s", "IN_PROGRESS").await?;
            Ok(message(&s, "ResourcesReady").contains("for item \"f-c\"").then_some(s))
        })
        .await?;
    assert!(harness.config_map("s-a").await?.is_none(), "two of three is not enough: {s}");
    ready("f-c").await?;
    let s = harness.instance("Bundle", "s", "ACTIVE").await?;
    assert_eq!((s["status"]["first"].as_i64(), s["status"]["second"].as_i64()), (Some(3), Some(3)));
    assert_eq!(harness.config_map("s-b").await?.unwrap_or_default()["data"]["of"], "f-b");
    // After a shrink, a foreign object of the old name is left alone.
    harness.patch((KRO, "Bundle", "s"), json!({"spec": {"list": ["a", "b"]}})).await?;
    harness.gone("v1", "ConfigMap", "f-c").await?;
    harness.gone("v1", "ConfigMap", "s-c").await?;
    harness
        .apply_json(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "f-c"}}))
        .await?;
    harness.patch((KRO, "Bundle", "s"), json!({"spec": {"list": ["a"]}})).await?;
    harness.gone("v1", "ConfigMap", "f-b").await?;
    assert!(harness.config_map("f-c").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn collection_of_another_instance_is_not_taken_over() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut items = map("parts", "${'shared-' + x}", json!({"of": "${schema.spec.name}"}));
    items["forEach"] = json!([{"x": "${['a', 'b']}"}]);
    harness.apply_json(&app(json!([items]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "one", json!({"name": "one"}))).await?;
    harness.instance("App", "one", "ACTIVE").await?;
    harness.apply_json(&instance("App", "two", json!({"name": "two"}))).await?;
    let two = harness.instance("App", "two", "ERROR").await?;
    assert!(message(&two, "Ready").contains("belongs to a different ApplySet"), "{two}");
    assert_eq!(harness.config_map("shared-a").await?.unwrap_or_default()["data"]["of"], "one");
    Ok(())
}

#[tokio::test]
async fn selectors_of_external_references_are_bound_again_with_the_spec() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    for namespace in ["n1", "n2"] {
        harness
            .apply_json(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
            .await?;
        for (name, tier) in [("x", "web"), ("y", "db")] {
            harness
                .apply_json(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                "name": name, "namespace": namespace, "labels": {"tier": tier, "app": "shop"}}}))
                .await?;
        }
    }
    let list = |id: &str, selector: Json| json!({"id": id, "externalRef": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"selector": selector}}});
    let rgd = definition(
        "reader",
        "Reader",
        json!({"tiers": "[]string", "labels": "map[string]string"}),
        json!({
            "some": "${some.size()}",
            "names": "${whole.map(m, m.metadata.namespace + '/' + m.metadata.name).sort()}"}),
        json!([
            list(
                "some",
                json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": "${schema.spec.tiers}"}]})
            ),
            list("whole", json!({"matchLabels": "${schema.spec.labels}"})),
        ]),
    );
    harness.apply_json(&rgd).await?;
    harness.definition("reader", "Active").await?;
    harness.apply_json(&instance("Reader", "r", json!({"tiers": ["web"], "labels": {"tier": "db"}}))).await?;
    let r = harness.instance("Reader", "r", "ACTIVE").await?;
    assert_eq!(r["status"]["some"], 2);
    assert_eq!(r["status"]["names"], json!(["n1/y", "n2/y"]));
    harness.patch((KRO, "Reader", "r"), json!({"spec": {"tiers": ["web", "db"]}})).await?;
    let some = async |count: i64| {
        harness
            .until("the count follows", async || {
                let r = harness.get(KRO, "Reader", "r").await?.unwrap_or_default();
                Ok((r["status"]["some"] == count).then_some(()))
            })
            .await
    };
    some(4).await?;
    harness.call("DELETE", "/api/v1/namespaces/n1/configmaps/x", None).await?;
    some(3).await
}

#[tokio::test]
async fn wrong_selectors_are_refused_with_kro_s_texts() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let wrong = [
        (json!({"matchLabels": "${schema.spec.missing}"}), "undefined field 'missing'"),
        (
            json!({"matchLabels": "${open"}),
            "expected object type for path metadata.selector.matchLabels, got string",
        ),
        (json!({"matchLabels": "${schema.spec.name}"}), "type mismatch"),
        (json!({"matchExpressions": "${schema.spec.name}"}), "type mismatch"),
        (json!("${schema.spec.name}"), "type mismatch"),
    ];
    for (n, (selector, text)) in wrong.into_iter().enumerate() {
        let node = json!({"id": "found", "externalRef": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"selector": selector}}});
        let (name, kind) = (format!("wrong{n}"), format!("Wrong{n}"));
        harness
            .apply_json(&definition(&name, &kind, json!({"name": "string"}), json!({}), json!([node])))
            .await?;
        let rgd = harness.definition(&name, "Inactive").await?;
        let found = message(&rgd, "GraphAccepted");
        assert!(found.contains(text), "{selector}: {found}");
    }
    Ok(())
}

#[tokio::test]
async fn crd_follows_its_definition_in_every_harmless_way() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let with = |spec: Json, short: Json| {
        let mut rgd = definition("app", "App", spec, json!({}), json!([]));
        rgd["spec"]["schema"]["shortNames"] = short;
        rgd["spec"]["schema"]["categories"] = json!(["all"]);
        rgd["spec"]["schema"]["metadata"] = json!({"labels": {"team": "red"}, "annotations": {"doc": "x"}});
        rgd
    };
    harness
        .apply_json(&with(
            json!({"n": "integer | default=1 minimum=0 maximum=9", "env": "string | enum=\"a,b\""}),
            json!(["ap"]),
        ))
        .await?;
    harness.definition("app", "Active").await?;
    let crd = async || harness.get(CRD.0, CRD.1, "apps.kro.run").await;
    let found = crd().await?.unwrap_or_default();
    assert_eq!(found["spec"]["names"]["shortNames"], json!(["ap"]));
    assert_eq!(found["metadata"]["labels"]["team"], "red");
    assert_eq!(found["metadata"]["annotations"]["doc"], "x");
    assert_eq!(found["spec"]["versions"][0]["additionalPrinterColumns"].as_array().map(Vec::len), Some(3));
    // Violations are refused by the server.
    for wrong in [json!({"n": 10}), json!({"n": -1}), json!({"env": "c"})] {
        assert!(harness.apply_json(&instance("App", "wrong", wrong)).await.is_err());
    }
    harness
        .apply_json(&with(
            json!({"n": "integer | default=2", "env": "string | enum=\"a,b,c\"", "more": "string"}),
            json!([]),
        ))
        .await?;
    harness.definition("app", "Active").await?;
    let found = crd().await?.unwrap_or_default();
    let spec = &found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    assert_eq!(spec["n"], json!({"type": "integer", "default": 2}));
    assert_eq!(spec["env"]["enum"], json!(["a", "b", "c"]));
    assert!(spec["more"].is_object() && found["spec"]["names"]["shortNames"].is_null());
    let made = harness.apply_json(&instance("App", "i", json!({"env": "c"}))).await?;
    assert_eq!(made["spec"], json!({"n": 2, "env": "c"}));
    Ok(())
}

#[tokio::test]
async fn deleted_definition_takes_its_crd_along_where_that_is_allowed() -> anyhow::Result<()> {
    let harness = Harness::with(Settings { allow_crd_deletion: true, ..Settings::default() }).await?;
    harness.apply_json(&app(json!([]))).await?;
    harness.definition("app", "Active").await?;
    harness.delete(KRO, "ResourceGraphDefinition", "app").await?;
    harness.gone(KRO, "ResourceGraphDefinition", "app").await?;
    harness.gone(CRD.0, CRD.1, "apps.kro.run").await?;
    Ok(())
}

#[tokio::test]
async fn revisions_are_immutable_numbered_without_gaps_and_adopted() -> anyhow::Result<()> {
    let mut harness = Harness::start().await?;
    let with = |v: &str| app(json!([map("a", "a", json!({"v": v}))]));
    for v in ["1", "2", "1"] {
        harness.apply_json(&with(v)).await?;
        harness.definition("app", "Active").await?;
    }
    // A revert is a new number; a restart issues nothing.
    harness.restart();
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    let numbers = async || -> anyhow::Result<Vec<i64>> {
        let found = harness.list(REVISIONS.0, REVISIONS.1, None).await?;
        let mut numbers: Vec<i64> =
            found.iter().filter_map(|revision| revision["spec"]["revision"].as_i64()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    };
    assert_eq!(numbers().await?, [1, 2, 3]);
    let error =
        harness.patch((REVISIONS.0, REVISIONS.1, "app-r00002"), json!({"spec": {"revision": 9}})).await;
    assert!(format!("{:#}", error.unwrap_err()).contains("spec is immutable"));
    // Orphaned, they are the next definition's: numbering goes on, and they go with it.
    harness.delete(KRO, "App", "i").await?;
    harness.gone(KRO, "App", "i").await?;
    let orphan = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Orphan"});
    let path = "/apis/kro.run/v1alpha1/resourcegraphdefinitions/app";
    harness.call("DELETE", path, Some(("application/json", &orphan))).await?;
    harness.gone(KRO, "ResourceGraphDefinition", "app").await?;
    assert_eq!(numbers().await?, [1, 2, 3]);
    harness.apply_json(&with("3")).await?;
    let rgd = harness.definition("app", "Active").await?;
    assert_eq!(rgd["status"]["lastIssuedRevision"], 4);
    for revision in harness.list(REVISIONS.0, REVISIONS.1, None).await? {
        assert_eq!(revision["metadata"]["ownerReferences"][0]["uid"], rgd["metadata"]["uid"], "{revision}");
    }
    Ok(())
}

#[tokio::test]
async fn revisions_that_kro_made_are_not_issued_again() -> anyhow::Result<()> {
    let mut harness = Harness::start().await?;
    harness.apply_json(&app(json!([map("a", "${schema.spec.name}", json!({}))]))).await?;
    harness.definition("app", "Active").await?;
    // kro's hash of the same spec is another.
    let at = (REVISIONS.0, REVISIONS.1, "app-r00001");
    let hash = json!({"kro.run/graph-revision-hash": "0123456789abcdef"});
    harness.patch(at, json!({"metadata": {"labels": hash}})).await?;
    harness.restart();
    // Once the next controller serves the kind, it has decided about revisions.
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    assert_eq!(harness.list(REVISIONS.0, REVISIONS.1, None).await?.len(), 1);
    let rgd = harness.definition("app", "Active").await?;
    assert_eq!(rgd["status"]["lastIssuedRevision"], 1);
    Ok(())
}

#[tokio::test]
async fn revisions_that_kro_made_lose_their_finalizer_when_deleted() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&app(json!([]))).await?;
    harness.definition("app", "Active").await?;
    let at = (REVISIONS.0, REVISIONS.1, "app-r00001");
    harness.patch(at, json!({"metadata": {"finalizers": ["kro.run/finalizer"]}})).await?;
    harness.delete(KRO, "ResourceGraphDefinition", "app").await?;
    harness.gone(KRO, "ResourceGraphDefinition", "app").await?;
    harness.delete(at.0, at.1, at.2).await.ok();
    harness.gone(at.0, at.1, at.2).await?;
    Ok(())
}

#[tokio::test]
async fn custom_conditions_keep_time_drop_duplicates_and_go_with_their_block() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let node = map("a", "a", json!({"v": "${schema.spec.value}", "name": "${schema.spec.name}"}));
    let with = |conditions: Option<Json>| {
        let mut rgd = app(json!([node]));
        if let Some(conditions) = conditions {
            rgd["spec"]["schema"]["status"] = json!({"conditions": conditions});
        }
        rgd
    };
    let conditions = json!([
        "${runtime.newCondition({type: 'Ready', status: a.data.v == 'one' ? 'True' : 'False', reason: 'Mine'})}",
        "${[a.data.name, 'Fixed'].map(t, runtime.newCondition({type: t, status: 'True'}))}"
    ]);
    harness.apply_json(&with(Some(conditions))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "Named"}))).await?;
    let i = harness.instance("App", "i", "ACTIVE").await?;
    let types = |i: &Json| -> Vec<String> {
        let all = i["status"]["conditions"].as_array().into_iter().flatten();
        all.map(|condition| condition["type"].as_str().unwrap_or_default().to_owned()).collect()
    };
    assert_eq!(types(&i), ["Ready", "Named", "Fixed"]);
    let ready = Harness::condition(&i, "Ready").clone();
    assert_eq!(
        (&ready["reason"], &ready["observedGeneration"]),
        (&json!("Mine"), &i["metadata"]["generation"])
    );
    // Equal types drop out, all copies of them, and the state says that something is wrong.
    harness.patch((KRO, "App", "i"), json!({"spec": {"name": "Fixed"}})).await?;
    let i = harness.instance("App", "i", "ERROR").await?;
    assert_eq!(types(&i), ["Ready"]);
    assert_eq!(Harness::condition(&i, "Ready")["lastTransitionTime"], ready["lastTransitionTime"]);
    harness.apply_json(&with(None)).await?;
    harness.definition("app", "Active").await?;
    harness
        .until("the built-in ones are back", async || {
            let i = harness.get(KRO, "App", "i").await?.unwrap_or_default();
            Ok((types(&i) == ["InstanceManaged", "GraphResolved", "ResourcesReady", "Ready"]).then_some(()))
        })
        .await
}

#[tokio::test]
async fn odd_versions_crds_and_unknown_fields_are_composed() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let odd = json!({
        "apiVersion": CRD.0, "kind": CRD.1, "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
            "versions": [{"name": "v1api20200601", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    harness.apply_json(&odd).await?;
    let resources = json!([
        {"id": "thing", "template": {"apiVersion": "example.com/v1api20200601", "kind": "Thing", "metadata": {"name": "t"},
            "deep": {"list": [{"v": "${schema.spec.name}"}]}, "when": "${string(0)}"}},
        {"id": "crd", "template": {"apiVersion": CRD.0, "kind": CRD.1,
            "metadata": {"name": "others.example.com", "annotations": {"of": "${schema.spec.name}"}},
            "spec": {"group": "example.com", "scope": "Namespaced",
                "names": {"kind": "Other", "plural": "others", "singular": "other", "listKind": "OtherList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}},
        map("a", "a", json!({"v": "${thing.deep.list[0].v}", "gone": "${thing.?nothing.?here.orValue('none')}"})),
    ]);
    let mut rgd = app(resources);
    rgd["spec"]["schema"]["status"] =
        json!({"made": "${string(a.metadata.creationTimestamp)}", "deep": "${thing.deep}"});
    harness.apply_json(&rgd).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    let i = harness.instance("App", "i", "ACTIVE").await?;
    let a = harness.config_map("a").await?.unwrap_or_default();
    assert_eq!(a["data"], json!({"v": "n", "gone": "none"}));
    assert_eq!(i["status"]["deep"], json!({"list": [{"v": "n"}]}));
    assert_eq!(i["status"]["made"], a["metadata"]["creationTimestamp"]);
    assert!(harness.get(CRD.0, CRD.1, "others.example.com").await?.is_some());
    Ok(())
}

#[tokio::test]
async fn jobs_wait_for_one_another_and_secrets_are_decoded() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let job = |id: &str, name: &str, annotation: &str| {
        json!({"id": id,
        "readyWhen": [format!("${{{id}.status.completionTime != null}}")],
        "template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "annotations": {"after": annotation}},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}})
    };
    let secret = json!({"id": "secret", "template": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "text"}}});
    let mut rgd = app(json!([
        job("first", "first", "none"),
        job("second", "second", "${string(first.status.completionTime)}"),
        secret,
        map(
            "plain",
            "plain",
            json!({"v": "${string(secret.data.k)}", "f": "${'%s:%d'.format([schema.metadata.name, 7])}"})
        ),
    ]));
    rgd["spec"]["schema"]["status"] = json!({"uid": "${schema.metadata.uid}", "names": {"all": ["${first.metadata.name}", "${schema.metadata.namespace}"]}});
    harness.apply_json(&rgd).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "IN_PROGRESS").await?;
    let plain = harness.config_map("plain").await?.unwrap_or_default();
    assert_eq!(plain["data"], json!({"v": "text", "f": "i:7"}));
    assert!(harness.get("batch/v1", "Job", "second").await?.is_none());
    let done = json!({"status": {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z", "succeeded": 1,
        "conditions": [{"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"},
            {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}]}});
    harness.patch_in(("batch/v1", "Job", "first"), None, "/status", done.clone()).await?;
    let second = harness
        .until("the second follows", async || Ok(harness.get("batch/v1", "Job", "second").await?))
        .await?;
    assert_eq!(second["metadata"]["annotations"]["after"], "2026-01-01T00:01:00Z");
    harness.patch_in(("batch/v1", "Job", "second"), None, "/status", done).await?;
    let i = harness.instance("App", "i", "ACTIVE").await?;
    assert_eq!(i["status"]["uid"], i["metadata"]["uid"]);
    assert_eq!(i["status"]["names"]["all"], json!(["first", "default"]));
    Ok(())
}

#[tokio::test]
async fn condition_changes_are_recorded_as_events_and_measured_behind_their_gates() -> anyhow::Result<()> {
    let mut harness = Harness::start().await?;
    let metrics = Metrics::default();
    let settings = Settings { condition_events: true, condition_metrics: true, ..Settings::default() };
    harness.replace(spawn_measured(harness.server.client(), settings, metrics.clone()));
    let mut gate = map("gate", "gate", json!({}));
    gate["readyWhen"] = json!(["${gate.?data.?open.hasValue()}"]);
    harness.apply_json(&app(json!([gate]))).await?;
    harness.definition("app", "Active").await?;
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "IN_PROGRESS").await?;
    harness.patch(("v1", "ConfigMap", "gate"), json!({"data": {"open": "yes"}})).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    let event = harness
        .until("an event tells of it", async || {
            let events = harness.list("v1", "Event", None).await?;
            let ready =
                |event: &&Json| event["reason"] == "Ready" && event["message"] == "False -> True: Ready";
            Ok(events.iter().find(ready).cloned())
        })
        .await?;
    assert_eq!(event["source"]["component"], "kro/apps.kro.run-controller");
    assert_eq!((&event["type"], &event["involvedObject"]["kind"]), (&json!("Normal"), &json!("App")));
    let text = crate::harness::exposition(&metrics);
    for line in [
        "instance_state_transitions_total{gvr=\"kro.run/v1alpha1, Resource=apps\",from_state=\"IN_PROGRESS\",to_state=\"ACTIVE\"} 1",
        "instance_condition_current_status_seconds{gvr=\"kro.run/v1alpha1, Resource=apps\",namespace=\"default\",name=\"i\",condition_type=\"Ready\",condition_status=\"True\",reason=\"Ready\"}",
        "rgd_graph_build_total{name=\"app\"}",
        "rgd_graph_revision_issue_total{reason=\"no_revision\"} 1",
        "runtime_node_not_ready_total",
        "cel_expr_eval_total",
        "dynamic_controller_gvr_count{} 1",
    ] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("instance_reconcile_errors_total{"), "waiting is no error");
    Ok(())
}
