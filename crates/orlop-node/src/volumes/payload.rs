//! Files of configMap, secret, downwardAPI and projected volumes.

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, PodCertificateProjection, Secret, Volume, VolumeProjection,
};
use orlop_client::Api;

use super::{
    Volumes,
    atomic_writer::{File, Payload},
    text, trust_bundles,
};
use crate::downward;

const MODE: u32 = 0o644;

type Data = BTreeMap<String, Vec<u8>>;

impl Volumes<'_> {
    /// Returns the files of a volume.
    pub(super) async fn payload(&self, volume: &Volume) -> Result<Payload, String> {
        let mode = |mode: Option<i32>| mode.map_or(MODE, mode_bits);
        if let Some(source) = &volume.config_map {
            let optional = source.optional == Some(true);
            let data = self.config_map(&source.name, optional).await?;
            return files(data, source.items.as_deref(), mode(source.default_mode), optional, "config");
        }
        if let Some(source) = &volume.secret {
            let optional = source.optional == Some(true);
            let data = self.secret(source.secret_name.as_deref().unwrap_or_default(), optional).await?;
            return files(data, source.items.as_deref(), mode(source.default_mode), optional, "secret");
        }
        if let Some(source) = &volume.downward_api {
            return self.downward(source.items.as_deref().unwrap_or_default(), mode(source.default_mode));
        }
        if let Some(source) = &volume.projected {
            let mut payload = Payload::new();
            for (index, part) in source.sources.iter().flatten().enumerate() {
                payload.extend(self.projection(&volume.name, index, part, mode(source.default_mode)).await?);
            }
            return Ok(payload);
        }
        Err("the type of the volume is not supported by this node".to_owned())
    }

    async fn projection(
        &self,
        volume: &str,
        index: usize,
        source: &VolumeProjection,
        mode: u32,
    ) -> Result<Payload, String> {
        if let Some(source) = &source.config_map {
            let optional = source.optional == Some(true);
            let data = self.config_map(&source.name, optional).await?;
            return files(data, source.items.as_deref(), mode, optional, "config");
        }
        if let Some(source) = &source.secret {
            let optional = source.optional == Some(true);
            let data = self.secret(&source.name, optional).await?;
            return files(data, source.items.as_deref(), mode, optional, "secret");
        }
        if let Some(source) = &source.downward_api {
            return self.downward(source.items.as_deref().unwrap_or_default(), mode);
        }
        if let Some(source) = &source.service_account_token {
            let token = self.tokens.get(self.client, self.pod, source).await?;
            let file = self.own_file(token.into_bytes(), mode);
            return Ok(Payload::from([(PathBuf::from(&source.path), file)]));
        }
        if let Some(source) = &source.cluster_trust_bundle {
            let content = trust_bundles::read(self.client, source).await?.into_bytes();
            return Ok(Payload::from([(PathBuf::from(&source.path), self.own_file(content, mode))]));
        }
        if let Some(source) = &source.pod_certificate {
            return self.certificate(volume, index, source, mode).await;
        }
        Err("a source of the projected volume is not supported by this node".to_owned())
    }

    /// Returns a file of a pod's own identity: readable by its owner only, where the volume has a group or the pod a user.
    fn own_file(&self, content: Vec<u8>, mode: u32) -> File {
        let context = self.pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        let has_group = context.is_some_and(|context| context.fs_group.is_some());
        let owner = self.user();
        File { content, mode: if has_group || owner.is_some() { 0o600 } else { mode }, owner }
    }

    /// Returns the user of a pod, if all its containers have the same.
    fn user(&self) -> Option<u32> {
        let spec = self.pod.spec.as_ref()?;
        let of_pod = spec.security_context.as_ref().and_then(|context| context.run_as_user);
        let init = spec.init_containers.iter().flatten();
        let mut users = init.chain(&spec.containers).map(|container| {
            container.security_context.as_ref().and_then(|context| context.run_as_user).or(of_pod)
        });
        let first = users.next()??;
        users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok())?
    }

    async fn config_map(&self, name: &str, optional: bool) -> Result<Option<Data>, String> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        match api.get_opt(name).await.map_err(text)? {
            Some(map) => {
                let mut data: Data =
                    map.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes())).collect();
                data.extend(map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0)));
                Ok(Some(data))
            }
            None if optional => Ok(None),
            None => Err(format!("configmap {name:?} not found")),
        }
    }

    async fn secret(&self, name: &str, optional: bool) -> Result<Option<Data>, String> {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        match api.get_opt(name).await.map_err(text)? {
            Some(secret) => {
                Ok(Some(secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect()))
            }
            None if optional => Ok(None),
            None => Err(format!("secret {name:?} not found")),
        }
    }

    /// Returns the key and certificates of a pod.
    async fn certificate(
        &self,
        volume: &str,
        index: usize,
        source: &PodCertificateProjection,
        mode: u32,
    ) -> Result<Payload, String> {
        let uid = self.pod.metadata.uid.clone().unwrap_or_default();
        let place = (uid, volume.to_owned(), index);
        let found = self.certificates.get(self.client, self.pod, &self.place.node, place, source).await?;
        let bundle = format!("{}{}", found.key, found.chain);
        let files = [
            (&source.credential_bundle_path, bundle),
            (&source.key_path, found.key),
            (&source.certificate_chain_path, found.chain),
        ];
        let files = files.into_iter().filter_map(|(path, content)| {
            let path = path.as_deref().filter(|path| !path.is_empty())?;
            Some((PathBuf::from(path), self.own_file(content.into_bytes(), mode)))
        });
        Ok(files.collect())
    }

    fn downward(&self, items: &[DownwardAPIVolumeFile], mode: u32) -> Result<Payload, String> {
        let mut payload = Payload::new();
        for item in items {
            let value = match (&item.field_ref, &item.resource_field_ref) {
                (Some(field), _) => downward::field(self.pod, self.place, &field.field_path)
                    .ok_or_else(|| format!("unsupported fieldPath: {}", field.field_path))?,
                (None, Some(selector)) => downward::resource(self.pod, None, selector, self.place)
                    .ok_or_else(|| format!("unsupported container resource: {}", selector.resource))?,
                (None, None) => continue,
            };
            let file = File::new(value.into_bytes(), item.mode.map_or(mode, mode_bits));
            payload.insert(PathBuf::from(&item.path), file);
        }
        Ok(payload)
    }
}

fn mode_bits(mode: i32) -> u32 {
    u32::try_from(mode).unwrap_or(MODE) & 0o777
}

/// Returns all keys as files, or those that are listed.
fn files(
    data: Option<Data>,
    items: Option<&[KeyToPath]>,
    mode: u32,
    optional: bool,
    kind: &str,
) -> Result<Payload, String> {
    let Some(data) = data else { return Ok(Payload::new()) };
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        let all = data.into_iter().map(|(key, content)| (PathBuf::from(key), File::new(content, mode)));
        return Ok(all.collect());
    };
    let mut payload = Payload::new();
    for item in items {
        match data.get(&item.key) {
            Some(content) => {
                let file = File::new(content.clone(), item.mode.map_or(mode, mode_bits));
                payload.insert(PathBuf::from(&item.path), file);
            }
            None if optional => {}
            None if kind == "secret" => {
                return Err(format!("references non-existent secret key: {}", item.key));
            }
            None => return Err(format!("configmap references non-existent config key: {}", item.key)),
        }
    }
    Ok(payload)
}
