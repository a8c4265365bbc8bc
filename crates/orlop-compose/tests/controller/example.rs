//! The example of the documentation.

use orlop_compose::offline::compile;
use orlop_compose::plan::{Action, plan_instance};
use orlop_compose::render::{Outcome, render, to_mermaid};
use serde_json::{Value as Json, json};

use crate::harness::Harness;

const DEFINITION: &str = include_str!("../../../../examples/compose/web-app.yaml");
const INSTANCE: &str = include_str!("../../../../examples/compose/shop.yaml");

fn read(yaml: &str) -> anyhow::Result<Json> {
    Ok(serde_saphyr::from_str(yaml)?)
}

#[tokio::test]
async fn example_is_served_and_planned() -> anyhow::Result<()> {
    let harness = Harness::start().await?;
    harness.apply_json(&read(DEFINITION)?).await?;
    harness.definition("web-app", "Active").await?;
    let plan = plan_instance(orlop_test::for_controllers(harness.client.clone()), &read(INSTANCE)?).await?;
    assert!(
        plan.changes.iter().all(|change| change.action == Action::Create) && plan.changes.len() == 5,
        "{plan:?}"
    );
    assert!(harness.config_map("shop-settings").await?.is_none(), "a plan writes nothing");

    harness.apply_json(&read(INSTANCE)?).await?;
    let shop = harness.instance("WebApp", "shop", "ACTIVE").await?;
    assert_eq!(shop["status"]["address"], "shop.default:8080");
    assert_eq!(shop["status"]["regions"], json!(["north", "south"]));
    let settings = harness.config_map("shop-settings").await?.unwrap_or_default();
    assert_eq!(settings["data"], json!({"LOG": "info", "MODE": "production"}));
    let deployment = harness.get("apps/v1", "Deployment", "shop").await?.unwrap_or_default();
    assert_eq!(deployment["spec"]["replicas"], 2);

    let mut changed = shop.clone();
    changed["spec"]["replicas"] = json!(3);
    changed["spec"]["regions"] = json!(["north"]);
    let plan = plan_instance(orlop_test::for_controllers(harness.client.clone()), &changed).await?;
    let of = |action: Action| plan.changes.iter().filter(move |change| change.action == action);
    let fields: Vec<&str> =
        of(Action::Change).flat_map(|change| &change.fields).map(String::as_str).collect();
    assert!(fields.contains(&"spec.replicas: 2 -> 3"), "{plan:?}");
    let gone: Vec<&str> = of(Action::Delete).map(|change| change.object.as_str()).collect();
    assert_eq!(gone, ["ConfigMap default/shop-south"]);
    Ok(())
}

#[test]
fn example_is_rendered_without_a_cluster() -> anyhow::Result<()> {
    let compiled = compile(&[read(DEFINITION)?], &[]).remove(0);
    let built = compiled.result.map_err(anyhow::Error::msg)?;
    let mut instance = read(INSTANCE)?;
    instance["spec"]["expose"] = json!(false);
    let rendered = render(&built, &instance).map_err(anyhow::Error::msg)?;
    let outcome = |id: &str| rendered.iter().find(|node| node.id == id).map(|node| node.outcome.clone());
    assert_eq!(outcome("service"), Some(Outcome::Skipped));
    let Some(Outcome::Manifests(regions)) = outcome("region") else { anyhow::bail!("{rendered:?}") };
    assert_eq!(regions.len(), 2);
    // The definition's defaults are filled in.
    let Some(Outcome::Manifests(deployment)) = outcome("deployment") else { anyhow::bail!("{rendered:?}") };
    assert_eq!(deployment[0]["spec"]["replicas"], 2);
    instance["spec"]["image"] = json!(1);
    assert!(render(&built, &instance).is_err_and(|error| error.contains("spec.image")));
    assert!(to_mermaid(&built.graph).contains("settings --> deployment"));
    Ok(())
}
