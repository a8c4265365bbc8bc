//! Custom resources.

use k8s_openapi::{
    api::core::v1::Secret, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ObjectMeta, PostParams},
    runtime::wait::{await_condition, conditions},
};
use orlop_test::Server;
use serde_json::json;
use tokio::time::timeout;

use crate::PATIENCE;

#[tokio::test]
async fn dependents_of_custom_resources_are_collected() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let version = |name: &str| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({"name": name, "served": true, "storage": name == "v2", "schema": {"openAPIV3Schema": schema}})
    };
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1"), version("v2")]},
    }))?;
    Api::<CustomResourceDefinition>::all(server.client()).create(&PostParams::default(), &definition).await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Widget"));
    let widgets = Api::<DynamicObject>::default_namespaced_with(server.client(), &resource);
    let widget = widgets.create(&PostParams::default(), &DynamicObject::new("w", &resource)).await?;
    let secrets = Api::<Secret>::default_namespaced(server.client());
    let owned = Secret {
        metadata: ObjectMeta {
            name: Some("s".to_owned()),
            // Of the version that the server does not prefer.
            owner_references: widget.controller_owner_ref(&resource).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        ..Secret::default()
    };
    let owned = secrets.create(&PostParams::default(), &owned).await?;
    widgets.delete("w", &DeleteParams::default()).await?;
    let uid = owned.uid().unwrap_or_default();
    timeout(PATIENCE, await_condition(secrets, "s", conditions::is_deleted(&uid))).await??;
    Ok(())
}
