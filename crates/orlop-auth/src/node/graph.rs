//! The objects that are in use on each node, changed as pods and volumes change.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;

use super::references::{self, Target};

/// An object by namespace and name; the namespace is empty for cluster-scoped ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Object {
    target: Target,
    namespace: Box<str>,
    name: Box<str>,
}

impl Object {
    fn new(target: Target, namespace: &str, name: &str) -> Self {
        Self { target, namespace: namespace.into(), name: name.into() }
    }
}

/// The edges of one source, such as a pod: what it uses, and where.
#[derive(Debug)]
struct Edges {
    node: Arc<str>,
    used: Box<[Arc<Object>]>,
}

/// A persistent volume that is bound to a claim.
#[derive(Debug)]
struct Volume {
    claim: Object,
    secrets: Box<[Object]>,
}

/// Objects and the nodes that use them. Objects that several pods use are stored once.
#[derive(Debug, Default)]
pub struct Graph {
    /// Pods, volume attachments, resource slices and pod certificate requests that are on a node.
    sources: HashMap<Object, Edges>,
    /// Numbers of sources on each node that use an object.
    users: HashMap<Arc<Object>, HashMap<Arc<str>, u32>>,
    volumes: HashMap<Box<str>, Volume>,
    /// Volumes that use a secret.
    volumes_of_secrets: HashMap<Object, HashSet<Box<str>>>,
    /// Node names, each stored once, with the number of sources on it.
    nodes: HashMap<Arc<str>, u32>,
}

impl Graph {
    /// Replaces an object that is on a node; `None` if it was removed.
    pub fn set(&mut self, target: Target, namespace: &str, name: &str, object: Option<&Value>) {
        let source = Object::new(target, namespace, name);
        self.remove(&source);
        let Some(object) = object else { return };
        let node = match target {
            Target::Pod
            | Target::VolumeAttachment
            | Target::ResourceSlice
            | Target::PodCertificateRequest => {
                object.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default()
            }
            _ => "",
        };
        if node.is_empty() {
            return;
        }
        let mut used = vec![source.clone()];
        if target == Target::Pod {
            let references = references::of_pod(object).into_iter();
            used.extend(references.map(|(target, name)| Object::new(target, namespace, &name)));
        }
        self.insert(source, node, used);
    }

    /// Replaces a persistent volume; `None` if it was removed.
    pub fn set_volume(&mut self, name: &str, volume: Option<&Value>) {
        if let Some(old) = self.volumes.remove(name) {
            for secret in &old.secrets {
                if let Some(volumes) = self.volumes_of_secrets.get_mut(secret) {
                    volumes.remove(name);
                    if volumes.is_empty() {
                        self.volumes_of_secrets.remove(secret);
                    }
                }
            }
        }
        let Some(volume) = volume else { return };
        let Some(claim) = volume.pointer("/spec/claimRef").filter(|claim| claim.is_object()) else { return };
        let text = |field: &str| claim.get(field).and_then(Value::as_str).unwrap_or_default();
        let claim = Object::new(Target::PersistentVolumeClaim, text("namespace"), text("name"));
        let secrets = references::of_volume(volume).into_iter();
        let secrets: Box<[Object]> =
            secrets.map(|(namespace, name)| Object::new(Target::Secret, &namespace, &name)).collect();
        for secret in &secrets {
            self.volumes_of_secrets.entry(secret.clone()).or_default().insert(name.into());
        }
        self.volumes.insert(name.into(), Volume { claim, secrets });
    }

    /// Removes all objects of a kind that are on nodes.
    pub fn clear(&mut self, target: Target) {
        let sources: Vec<Object> =
            self.sources.keys().filter(|source| source.target == target).cloned().collect();
        sources.iter().for_each(|source| self.remove(source));
    }

    /// Removes all persistent volumes.
    pub fn clear_volumes(&mut self) {
        self.volumes.clear();
        self.volumes_of_secrets.clear();
    }

    /// Returns true if an object is in use on a node, directly or by a volume.
    pub fn is_used(&self, node: &str, target: Target, namespace: &str, name: &str) -> bool {
        let object = Object::new(target, namespace, name);
        if self.is_used_directly(node, &object) {
            return true;
        }
        let volumes = self.volumes_of_secrets.get(&object).into_iter().flatten();
        volumes.into_iter().any(|volume| self.is_volume_used(node, volume))
    }

    /// Returns true if a persistent volume is in use on a node.
    pub fn is_volume_used(&self, node: &str, name: &str) -> bool {
        self.volumes.get(name).is_some_and(|volume| self.is_used_directly(node, &volume.claim))
    }

    fn is_used_directly(&self, node: &str, object: &Object) -> bool {
        self.users.get(object).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn insert(&mut self, source: Object, node: &str, used: Vec<Object>) {
        let node = match self.nodes.get_key_value(node) {
            Some((node, _)) => node.clone(),
            None => node.into(),
        };
        *self.nodes.entry(node.clone()).or_default() += 1;
        let used = used.into_iter().map(|object| {
            let object = match self.users.get_key_value(&object) {
                Some((object, _)) => object.clone(),
                None => Arc::new(object),
            };
            *self.users.entry(object.clone()).or_default().entry(node.clone()).or_default() += 1;
            object
        });
        let used = used.collect();
        self.sources.insert(source, Edges { node, used });
    }

    fn remove(&mut self, source: &Object) {
        let Some(Edges { node, used }) = self.sources.remove(source) else { return };
        for object in &used {
            if let Some(nodes) = self.users.get_mut(object) {
                decrement(nodes, &node);
                if nodes.is_empty() {
                    self.users.remove(object);
                }
            }
        }
        decrement(&mut self.nodes, &node);
    }
}

fn decrement(counts: &mut HashMap<Arc<str>, u32>, key: &Arc<str>) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(node: &str) -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "n"},
            "spec": {
                "nodeName": node, "serviceAccountName": "sa", "imagePullSecrets": [{"name": "pull"}],
                "containers": [{"envFrom": [{"secretRef": {"name": "env"}}],
                    "env": [{"valueFrom": {"configMapKeyRef": {"name": "key"}}}]}],
                "volumes": [
                    {"name": "a", "secret": {"secretName": "vol"}}, {"name": "b", "configMap": {"name": "map"}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": "claim"}}, {"name": "d", "ephemeral": {}},
                    {"name": "e", "projected": {"sources": [{"secret": {"name": "proj"}}]}}],
                "resourceClaims": [{"name": "x", "resourceClaimName": "rc"}, {"name": "y", "resourceClaimTemplateName": "t"}],
            },
            "status": {"resourceClaimStatuses": [{"name": "y", "resourceClaimName": "made"}]},
        })
    }

    #[test]
    fn node_uses_what_its_pods_refer_to_while_they_are_there() {
        let used = [
            (Target::Pod, "p"),
            (Target::ServiceAccount, "sa"),
            (Target::Secret, "pull"),
            (Target::Secret, "env"),
            (Target::Secret, "vol"),
            (Target::Secret, "proj"),
            (Target::ConfigMap, "key"),
            (Target::ConfigMap, "map"),
            (Target::PersistentVolumeClaim, "claim"),
            (Target::PersistentVolumeClaim, "p-d"),
            (Target::ResourceClaim, "rc"),
            (Target::ResourceClaim, "made"),
        ];
        let mut graph = Graph::default();
        graph.set(Target::Pod, "n", "p", Some(&pod("one")));
        graph.set(Target::Pod, "n", "q", Some(&pod("two")));
        for (target, name) in used {
            assert!(graph.is_used("one", target, "n", name), "{target:?} {name}");
            assert!(!graph.is_used("one", target, "m", name));
            assert!(!graph.is_used("three", target, "n", name));
        }
        graph.set(Target::Pod, "n", "p", None);
        assert!(used.iter().all(|(target, name)| !graph.is_used("one", *target, "n", name)));
        assert!(graph.is_used("two", Target::Secret, "n", "env"), "the other pod still uses it");
        graph.set(Target::Pod, "n", "q", None);
        assert!(graph.sources.is_empty() && graph.users.is_empty() && graph.nodes.is_empty());
    }

    #[test]
    fn pod_without_a_node_and_mirror_pods_use_nothing() {
        let mut graph = Graph::default();
        graph.set(Target::Pod, "n", "p", Some(&pod("")));
        assert!(graph.users.is_empty());
        let mut mirror = pod("one");
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        graph.set(Target::Pod, "n", "p", Some(&mirror));
        assert!(graph.is_used("one", Target::Pod, "n", "p"));
        assert!(!graph.is_used("one", Target::Secret, "n", "env"));
    }

    #[test]
    fn node_uses_volumes_of_its_claims_and_their_secrets() {
        let mut graph = Graph::default();
        let volume = json!({"spec": {"claimRef": {"namespace": "n", "name": "claim"},
            "csi": {"nodePublishSecretRef": {"namespace": "m", "name": "s"},
                "controllerPublishSecretRef": {"namespace": "m", "name": "hidden"}}}});
        graph.set_volume("v", Some(&volume));
        assert!(!graph.is_volume_used("one", "v"));
        graph.set(Target::Pod, "n", "p", Some(&pod("one")));
        assert!(graph.is_volume_used("one", "v"));
        assert!(graph.is_used("one", Target::Secret, "m", "s"));
        assert!(!graph.is_used("one", Target::Secret, "m", "hidden"));
        assert!(!graph.is_volume_used("two", "v"));
        let attachment = json!({"spec": {"nodeName": "one"}});
        graph.set(Target::VolumeAttachment, "", "va", Some(&attachment));
        assert!(graph.is_used("one", Target::VolumeAttachment, "", "va"));
        graph.set_volume("v", None);
        assert!(!graph.is_volume_used("one", "v") && !graph.is_used("one", Target::Secret, "m", "s"));
        assert!(graph.volumes_of_secrets.is_empty());
    }
}
