//! Files of configMap, secret, downwardAPI and projected volumes.

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Secret, Volume, VolumeProjection,
};
use orlop_client::{Api, api::ListParams};

use super::{
    Volumes,
    atomic_writer::{File, Payload},
    text,
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
            for source_of in source.sources.iter().flatten() {
                payload.extend(self.projection(source_of, mode(source.default_mode)).await?);
            }
            return Ok(payload);
        }
        Err("the type of the volume is not supported by this node".to_owned())
    }

    async fn projection(&self, source: &VolumeProjection, mode: u32) -> Result<Payload, String> {
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
            let file = File { content: token.into_bytes(), mode: self.token_mode(mode) };
            return Ok(Payload::from([(PathBuf::from(&source.path), file)]));
        }
        if let Some(source) = &source.cluster_trust_bundle {
            let bundle = self.trust_bundle(source.name.as_deref(), source.signer_name.as_deref()).await?;
            let Some(bundle) = bundle else {
                return match source.optional == Some(true) {
                    true => {
                        Ok(Payload::from([(PathBuf::from(&source.path), File { content: Vec::new(), mode })]))
                    }
                    false => Err("clustertrustbundle not found".to_owned()),
                };
            };
            let file = File { content: bundle.into_bytes(), mode };
            return Ok(Payload::from([(PathBuf::from(&source.path), file)]));
        }
        Err("a source of the projected volume is not supported by this node".to_owned())
    }

    /// Returns the mode of a token: readable by its owner only, where the volume has a group or the pod a user.
    fn token_mode(&self, mode: u32) -> u32 {
        let context = self.pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        let is_owned =
            context.is_some_and(|context| context.fs_group.is_some() || context.run_as_user.is_some());
        if is_owned { 0o600 } else { mode }
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

    /// Returns the certificates of a trust bundle, or of all bundles of a signer.
    async fn trust_bundle(&self, name: Option<&str>, signer: Option<&str>) -> Result<Option<String>, String> {
        use orlop_client::core::{ApiResource, DynamicObject, GroupVersionKind};
        let kind = GroupVersionKind::gvk("certificates.k8s.io", "v1beta1", "ClusterTrustBundle");
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let bundle = |object: DynamicObject| {
            object.data.pointer("/spec/trustBundle").and_then(|text| text.as_str()).map(str::to_owned)
        };
        if let Some(name) = name {
            return Ok(api.get_opt(name).await.map_err(text)?.and_then(bundle));
        }
        let found = api.list(&ListParams::default()).await.map_err(text)?;
        let is_of = |object: &DynamicObject| {
            object.data.pointer("/spec/signerName").and_then(|text| text.as_str()) == signer
        };
        let bundles: Vec<String> = found.items.into_iter().filter(is_of).filter_map(bundle).collect();
        Ok(Some(bundles.concat()).filter(|text| !text.is_empty()))
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
            let file = File { content: value.into_bytes(), mode: item.mode.map_or(mode, mode_bits) };
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
        let all = data.into_iter().map(|(key, content)| (PathBuf::from(key), File { content, mode }));
        return Ok(all.collect());
    };
    let mut payload = Payload::new();
    for item in items {
        match data.get(&item.key) {
            Some(content) => {
                let file = File { content: content.clone(), mode: item.mode.map_or(mode, mode_bits) };
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
