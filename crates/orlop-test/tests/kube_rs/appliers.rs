//! Controllers that apply to the same object, and their conflicts.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{
        controller::{Action, Controller},
        wait::await_condition,
        watcher,
    },
};
use orlop_test::Server;
use serde_json::json;
use tokio::{task::AbortHandle, time::timeout};

use crate::{PATIENCE, refusal};

/// A controller that wants an object to be of its colour.
struct Painter {
    name: &'static str,
    colour: &'static str,
    client: Client,
    forces: AtomicBool,
    refusals: Mutex<Vec<String>>,
}

impl Painter {
    fn run(name: &'static str, colour: &'static str, server: &Server) -> (Arc<Self>, AbortHandle) {
        let painter = Arc::new(Self {
            name,
            colour,
            client: server.client(),
            forces: AtomicBool::new(false),
            refusals: Mutex::default(),
        });
        let running = Controller::new(
            Api::<ConfigMap>::default_namespaced(server.client()),
            watcher::Config::default(),
        )
        .run(
            |map, painter| async move { painter.paint(&map.name_any()).await },
            |_, _, _| Action::requeue(Duration::from_millis(20)),
            painter.clone(),
        )
        .for_each(|_| std::future::ready(()));
        (painter, tokio::spawn(running).abort_handle())
    }

    /// Wants the colour, and a field of its own.
    async fn paint(&self, name: &str) -> kube::Result<Action> {
        if name != "shared" {
            return Ok(Action::await_change());
        }
        let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "data": {"colour": self.colour, self.name: "was here"}});
        let mut parameters = PatchParams::apply(self.name);
        parameters.force = self.forces.load(Ordering::Relaxed);
        let maps = Api::<ConfigMap>::default_namespaced(self.client.clone());
        let applied = maps.patch(name, &parameters, &Patch::Apply(wanted)).await;
        if let Err(kube::Error::Api(status)) = &applied
            && let Ok(mut refusals) = self.refusals.lock()
        {
            refusals.push(status.message.clone());
        }
        applied.map(|_| Action::await_change())
    }

    fn refusal(&self) -> Option<String> {
        self.refusals.lock().ok()?.last().cloned()
    }
}

fn entry(map: Option<&ConfigMap>, key: &str) -> Option<String> {
    map?.data.as_ref()?.get(key).cloned()
}

#[tokio::test]
async fn conflicting_appliers_converge_by_force() -> anyhow::Result<()> {
    let server = Server::start().await?;
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let (red, red_runs) = Painter::run("red", "red", &server);
    let first = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared", "labels": {"a": "b"}}});
    maps.patch("shared", &PatchParams::apply("founder"), &Patch::Apply(first)).await?;
    let painted =
        |colour: &'static str| move |map: Option<&ConfigMap>| entry(map, "colour").as_deref() == Some(colour);
    timeout(PATIENCE, await_condition(maps.clone(), "shared", painted("red"))).await??;

    // The second wants another colour: refused again and again, and the object is left alone.
    let (blue, blue_runs) = Painter::run("blue", "blue", &server);
    timeout(PATIENCE, async {
        while blue.refusal().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await?;
    let expected = "Apply failed with 1 conflict: conflict with \"red\": .data.colour";
    assert_eq!(blue.refusal().as_deref(), Some(expected));
    let before = maps.get("shared").await?;
    assert_eq!(entry(Some(&before), "blue"), None, "a refused apply applies nothing");

    // By force it gets its way, once; then the first is refused, and both are still.
    blue.forces.store(true, Ordering::Relaxed);
    let after = timeout(PATIENCE, await_condition(maps.clone(), "shared", painted("blue"))).await??;
    assert_eq!(entry(after.as_ref(), "blue").as_deref(), Some("was here"));
    timeout(PATIENCE, async {
        while red.refusal().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await?;
    let expected = "Apply failed with 1 conflict: conflict with \"blue\": .data.colour";
    assert_eq!(red.refusal().as_deref(), Some(expected));
    let settled = maps.get("shared").await?;
    assert_eq!(entry(Some(&settled), "red").as_deref(), Some("was here"), "what the other owned stays");
    assert_eq!(settled.resource_version(), maps.get("shared").await?.resource_version());
    red_runs.abort();
    blue_runs.abort();
    Ok(())
}

#[tokio::test]
async fn shared_field_is_removed_with_its_last_manager() -> anyhow::Result<()> {
    let server = Server::with_controllers(&[]).await?;
    let maps = Api::<ConfigMap>::default_namespaced(server.client());
    let apply = async |manager: &str, data: serde_json::Value| {
        let wanted =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
        maps.patch("m", &PatchParams::apply(manager), &Patch::Apply(wanted)).await
    };
    apply("one", json!({"a": "1"})).await?;
    let shared = apply("two", json!({"a": "1", "b": "2"})).await?;
    let again = apply("two", json!({"a": "1", "b": "2"})).await?;
    assert_eq!(again.resource_version(), shared.resource_version(), "nothing changed, so nothing is written");
    assert_eq!(again.managed_fields(), shared.managed_fields());
    assert_eq!(entry(Some(&apply("one", json!({})).await?), "a").as_deref(), Some("1"));
    let last = apply("two", json!({"b": "2"})).await?;
    assert_eq!(entry(Some(&last), "a"), None);
    // Whoever replaces the object takes what it changes.
    let mut replaced = last.clone();
    replaced.data = Some([("b".to_owned(), "3".to_owned())].into());
    maps.replace("m", &Default::default(), &replaced).await?;
    let status = refusal(apply("two", json!({"b": "2"})).await);
    assert_eq!((status.code, status.reason.as_str()), (409, "Conflict"));
    assert!(
        status
            .message
            .starts_with("Apply failed with 1 conflict: conflict with \"unknown\" using v1: .data.b")
    );
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    assert_eq!(
        causes.first().map(|cause| (cause.reason.as_str(), cause.field.as_str())),
        Some(("FieldManagerConflict", ".data.b"))
    );
    Ok(())
}
