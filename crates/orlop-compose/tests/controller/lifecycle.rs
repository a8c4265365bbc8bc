//! From a definition to its instances and back.

use orlop_compose::{Metrics, Settings};
use serde_json::json;

use crate::harness::{Harness, app, definition, exposition, instance, map, spawn_measured};

#[tokio::test]
async fn graph_of_two_config_maps_is_applied_reported_and_deleted() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let resources = json!([
        map(
            "second",
            "${first.metadata.name + '-copy'}",
            json!({"value": "${first.data.value}", "from": "${first.metadata.uid}"})
        ),
        map("first", "${schema.spec.name}", json!({"value": "${schema.spec.value}"})),
    ]);
    let mut rgd = app(resources);
    rgd["spec"]["schema"]["status"] =
        json!({"copy": "${second.data.value}", "names": ["${first.metadata.name}"]});
    harness.apply_json(&rgd).await?;
    let rgd = harness.definition("app", "Active").await?;
    assert_eq!(rgd["status"]["topologicalOrder"], json!(["first", "second"]));
    assert_eq!(rgd["status"]["resources"], json!([{"id": "second", "dependencies": [{"id": "first"}]}]));
    assert_eq!(rgd["status"]["lastIssuedRevision"], 1);
    assert_eq!(rgd["metadata"]["finalizers"], json!(["kro.run/finalizer"]));

    harness.apply_json(&instance("App", "mine", json!({"name": "box"}))).await?;
    let mine = harness.instance("App", "mine", "ACTIVE").await?;
    assert_eq!(mine["status"]["copy"], "one");
    assert_eq!(mine["status"]["names"], json!(["box"]));
    assert_eq!(Harness::condition(&mine, "Ready")["status"], "True");
    let copy = harness.config_map("box-copy").await?.unwrap_or_default();
    assert_eq!(copy["data"]["value"], "one");
    assert_eq!(copy["metadata"]["labels"]["kro.run/node-id"], "second");
    assert_eq!(copy["metadata"]["annotations"]["internal.kro.run/apply-order"], "2");

    harness.patch(("kro.run/v1alpha1", "App", "mine"), json!({"spec": {"value": "two"}})).await?;
    let mine = harness
        .until("the change arrives", async || {
            let mine = harness.instance("App", "mine", "ACTIVE").await?;
            Ok((mine["status"]["copy"] == "two").then_some(mine))
        })
        .await?;
    assert_eq!(mine["metadata"]["annotations"]["applyset.kubernetes.io/contains-group-kinds"], "ConfigMap");

    harness.delete("kro.run/v1alpha1", "App", "mine").await?;
    harness.gone("kro.run/v1alpha1", "App", "mine").await?;
    assert!(harness.config_map("box").await?.is_none() && harness.config_map("box-copy").await?.is_none());

    harness.delete("kro.run/v1alpha1", "ResourceGraphDefinition", "app").await?;
    harness.gone("kro.run/v1alpha1", "ResourceGraphDefinition", "app").await?;
    let crd = harness.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", "apps.kro.run").await?;
    assert!(crd.is_some(), "the CRD stays unless its deletion is allowed");
    Ok(())
}

#[tokio::test]
async fn chain_of_twenty_is_active_in_one_pass() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    let mut resources = vec![map("n0", "${schema.spec.name + '-0'}", json!({"v": "${schema.spec.value}"}))];
    for n in 1..20 {
        let before = n - 1;
        resources.push(map(
            &format!("n{n}"),
            &format!("${{schema.spec.name + '-{n}'}}"),
            json!({"v": format!("${{n{before}.data.v + '.'}}")}),
        ));
    }
    let rgd = definition(
        "chain",
        "Chain",
        json!({"name": "string", "value": "string"}),
        json!({"last": "${n19.data.v}"}),
        json!(resources),
    );
    harness.apply_json(&rgd).await?;
    harness.definition("chain", "Active").await?;
    let began = std::time::Instant::now();
    harness.apply_json(&instance("Chain", "c", json!({"name": "c", "value": "x"}))).await?;
    let chain = harness.instance("Chain", "c", "ACTIVE").await?;
    println!("chain of twenty: {:?}", began.elapsed());
    assert_eq!(chain["status"]["last"], format!("x{}", ".".repeat(19)));
    Ok(())
}

/// Sums a metric over the lines that have all of these texts.
fn sum(metrics: &Metrics, name: &str, texts: &[&str]) -> u64 {
    let text = exposition(metrics);
    let lines =
        text.lines().filter(|line| line.starts_with(name) && texts.iter().all(|text| line.contains(text)));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[tokio::test]
async fn chain_costs_one_pass_and_nothing_is_written_when_nothing_changed() -> anyhow::Result<()> {
    let mut harness = Harness::start().await?;
    let metrics = Metrics::default();
    harness.replace(spawn_measured(harness.server.client(), Settings::default(), metrics.clone()));
    let mut nodes = vec![map("n0", "n0", json!({"v": "${schema.spec.value}"}))];
    nodes.extend(
        (1..5).map(|n| {
            map(&format!("n{n}"), &format!("n{n}"), json!({"v": format!("${{n{}.data.v}}", n - 1)}))
        }),
    );
    harness.apply_json(&app(json!(nodes))).await?;
    harness.definition("app", "Active").await?;
    let writes = || {
        ["POST", "PUT", "PATCH", "DELETE"]
            .map(|verb| sum(&metrics, "rest_client_requests_total", &[&format!("method=\"{verb}\"")]))
            .iter()
            .sum::<u64>()
    };
    let passes = || sum(&metrics, "instance_reconcile_total", &["Resource=apps"]);
    let before = writes();
    harness.apply_json(&instance("App", "i", json!({"name": "n"}))).await?;
    harness.instance("App", "i", "ACTIVE").await?;
    // The pass is counted when it ends, which is after its last write.
    harness.until("the pass ends", async || Ok((passes() > 0).then_some(()))).await?;
    // Labels and finalizer, inventory, five objects, status.
    assert_eq!(writes() - before, 8);
    let (after, count) = (writes(), passes());
    // A pass that finds nothing to do: something of the instance changed that the graph does not read.
    harness.patch(("kro.run/v1alpha1", "App", "i"), json!({"metadata": {"labels": {"mine": "x"}}})).await?;
    harness.until("another pass ends", async || Ok((passes() > count).then_some(()))).await?;
    assert_eq!(writes(), after, "nothing changed, so nothing is written");
    assert_eq!(passes(), 2, "echoes of its own writes start no pass");
    // Neither does a restarted controller write, except to what changed meanwhile.
    harness.replace(tokio::spawn(async {}));
    harness.patch(("v1", "ConfigMap", "n4"), json!({"data": {"v": "changed"}})).await?;
    let again = Metrics::default();
    harness.replace(spawn_measured(harness.server.client(), Settings::default(), again.clone()));
    harness
        .until("drift is corrected", async || {
            let n4 = harness.config_map("n4").await?.unwrap_or_default();
            Ok((n4["data"]["v"] == "one").then_some(()))
        })
        .await?;
    harness
        .until("the pass ends", async || {
            Ok((sum(&again, "instance_reconcile_total", &["Resource=apps"]) > 0).then_some(()))
        })
        .await?;
    // Two more are the CRDs that a controller installs.
    assert_eq!(sum(&again, "rest_client_requests_total", &["method=\"PATCH\""]), 3);
    Ok(())
}

#[tokio::test]
async fn new_objects_are_written_once_each_and_not_read() -> anyhow::Result<()> {
    const WIDTH: usize = 50;
    let mut harness = Harness::start().await?;
    let metrics = Metrics::default();
    harness.replace(spawn_measured(harness.server.client(), Settings::default(), metrics.clone()));
    let nodes: Vec<_> = (0..WIDTH)
        .map(|n| {
            let name = format!("${{schema.metadata.name}}-{n}");
            map(&format!("n{n}"), &name, json!({"v": "${schema.spec.value}"}))
        })
        .collect();
    harness.apply_json(&app(json!(nodes))).await?;
    harness.definition("app", "Active").await?;
    // From then on its watch tells which objects there are.
    let synced = "dynamic_controller_informer_sync_duration_seconds_count";
    let is_synced = || sum(&metrics, synced, &["Resource=configmaps"]) > 0;
    harness.until("the watch is complete", async || Ok(is_synced().then_some(()))).await?;
    let requests =
        |method: &str| sum(&metrics, "rest_client_requests_total", &[&format!("method=\"{method}\"")]);
    let passes = || sum(&metrics, "instance_reconcile_total", &["Resource=apps"]);
    for (number, name) in ["first", "second"].into_iter().enumerate() {
        let (reads, patches) = (requests("GET"), requests("PATCH"));
        harness.apply_json(&instance("App", name, json!({"name": name}))).await?;
        harness.instance("App", name, "ACTIVE").await?;
        let ended = || passes() > number as u64;
        harness.until("the pass ends", async || Ok(ended().then_some(()))).await?;
        assert_eq!(requests("GET") - reads, 1, "the instance");
        // Labels and finalizer, inventory, the objects.
        assert_eq!(requests("PATCH") - patches, 2 + WIDTH as u64);
    }
    Ok(())
}
