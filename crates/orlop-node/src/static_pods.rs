//! Static pods: manifests in a folder of the node. The API shows each as a mirror pod, and does not decide about it.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::{Node as NodeObject, Pod, Toleration},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
    jiff::Timestamp,
};
use orlop_client::{
    Api,
    api::{DeleteParams, PostParams},
};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use crate::{context::Node, manager::StaticChange};

/// Interval at which the folder is read.
const INTERVAL: Duration = Duration::from_secs(5);
/// Bytes of a manifest.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;
const SOURCE: &str = "kubernetes.io/config.source";
const HASH: &str = "kubernetes.io/config.hash";
const SEEN: &str = "kubernetes.io/config.seen";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Follows the manifests of a folder for ever.
pub(crate) async fn watch(node: Arc<Node>, folder: PathBuf, changes: mpsc::Sender<StaticChange>) {
    let mut known: HashMap<String, (Arc<Pod>, u64)> = HashMap::new();
    loop {
        let found = read(&folder, &node.settings.name);
        let gone: Vec<String> = known.keys().filter(|uid| !found.contains_key(*uid)).cloned().collect();
        for uid in gone {
            if let Some((pod, _)) = known.remove(&uid) {
                delete_mirror(&node, &pod).await;
            }
            if changes.send(StaticChange::Remove(uid)).await.is_err() {
                return;
            }
        }
        for (uid, pod) in found {
            let (pod, mirrors) = known.entry(uid).or_insert_with(|| (Arc::new(pod), 0));
            *mirrors += u64::from(create_mirror(&node, pod).await);
            if changes.send(StaticChange::Apply(pod.clone(), *mirrors)).await.is_err() {
                return;
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Reads the pods of a folder, by uid.
fn read(folder: &Path, node: &str) -> HashMap<String, Pod> {
    let mut pods = HashMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
        let is_small =
            entry.metadata().is_ok_and(|found| found.is_file() && found.len() <= MANIFEST_BYTES_MAX);
        if is_hidden || !is_small {
            continue;
        }
        let pod =
            fs::read_to_string(&path).map_err(|error| error.to_string()).and_then(|text| parse(&text, node));
        match pod {
            Ok(pod) => drop(pods.insert(pod.metadata.uid.clone().unwrap_or_default(), pod)),
            Err(error) => {
                tracing::warn!(path = %path.display(), error, "cannot use the manifest of a static pod");
            }
        }
    }
    pods
}

/// Returns the pod of a manifest, with the identity that a kubelet gives it.
fn parse(text: &str, node: &str) -> Result<Pod, String> {
    // YAML is decoded as a value: decoders of a pod's types are large, and exist for JSON values already.
    let manifest: serde_json::Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let mut pod: Pod = serde_json::from_value(manifest).map_err(|error| error.to_string())?;
    let metadata = &mut pod.metadata;
    let name = metadata.name.take().filter(|name| !name.is_empty()).ok_or("the pod has no name")?;
    let digest = Sha256::digest(format!("{node}\n{text}").as_bytes());
    let hash: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    metadata.name = Some(format!("{name}-{node}"));
    metadata.namespace.get_or_insert_with(|| "default".to_owned());
    metadata.uid = Some(hash.clone());
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(HASH.to_owned(), hash);
    annotations.insert(SOURCE.to_owned(), "file".to_owned());
    annotations.insert(SEEN.to_owned(), Timestamp::now().to_string());
    let spec = pod.spec.as_mut().ok_or("the pod has no spec")?;
    spec.node_name = Some(node.to_owned());
    let tolerates_all = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    spec.tolerations.get_or_insert_default().push(tolerates_all);
    Ok(pod)
}

/// Shows a static pod in the API. Returns true if a new object was created.
async fn create_mirror(node: &Node, pod: &Pod) -> bool {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(node.client.0.clone(), namespace);
    let hash = pod.metadata.uid.clone().unwrap_or_default();
    match pods.get_opt(name).await {
        Ok(Some(existing)) if is_current(&existing, &hash) => return false,
        // Of another version of the manifest, or deleted by somebody: the process goes on, and so does its object.
        Ok(Some(existing)) if annotation(&existing, MIRROR).is_some() => {
            let _ = pods.delete(name, &DeleteParams::default().grace_period(0)).await;
        }
        // A pod of the API has the name.
        Ok(Some(_)) => return false,
        Ok(None) => {}
        // A node may not read a pod that is not its own, and so none that does not exist.
        Err(orlop_client::Error::Api(refusal)) if refusal.code == 403 => {}
        Err(error) => {
            tracing::warn!(%error, pod = name, "cannot read the mirror of a static pod");
            return false;
        }
    }
    let nodes: Api<NodeObject> = Api::all(node.client.0.clone());
    let Ok(Some(object)) = nodes.get_opt(&node.settings.name).await else { return false };
    let mut mirror = pod.clone();
    mirror.metadata.uid = None;
    mirror.metadata.annotations.get_or_insert_default().insert(MIRROR.to_owned(), hash);
    mirror.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.settings.name.clone(),
        uid: object.metadata.uid.unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    let created = pods.create(&PostParams::default(), &mirror).await;
    if let Err(error) = &created {
        tracing::warn!(%error, pod = name, "cannot create the mirror of a static pod");
    }
    created.is_ok()
}

/// Returns true for the mirror of a manifest that nobody has deleted.
fn is_current(mirror: &Pod, hash: &str) -> bool {
    annotation(mirror, MIRROR) == Some(hash) && mirror.metadata.deletion_timestamp.is_none()
}

async fn delete_mirror(node: &Node, pod: &Pod) {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(node.client.0.clone(), namespace);
    let _ = pods.delete(name, &DeleteParams::default().grace_period(0)).await;
}

fn annotation<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_pod_is_named_after_its_node() {
        let text =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: b}]}\n";
        let pod = parse(text, "n1").unwrap();
        assert_eq!(pod.metadata.name.as_deref(), Some("web-n1"));
        assert_eq!(pod.metadata.uid, parse(text, "n1").unwrap().metadata.uid);
        assert_ne!(pod.metadata.uid, parse(text, "n2").unwrap().metadata.uid);
        assert_eq!(annotation(&pod, SOURCE), Some("file"));
        assert!(parse("kind: Pod", "n1").is_err());
    }
}
