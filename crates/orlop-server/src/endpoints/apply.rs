//! Server-side apply. Creates the object if there is none.

use http::Response;
use orlop_api::{
    apply::Applied,
    decode::{self, Decoded, StrictOrder},
    go_text, object_meta,
    options::FieldValidation,
    schema::{Root, prune, validate_nulls},
    status::Status,
};
use serde_json::Value;
use std::borrow::Cow;

use super::{
    Request,
    create::create_object,
    decoder::undecodable_patch,
    prepare,
    update::{check_name, complete, write},
};
use crate::{
    http::body::Body,
    object::{metadata_mut, now},
    request::options::WriteOptions,
};

pub(super) async fn apply(request: &Request, options: &WriteOptions) -> Result<Response<Body>, Status> {
    let config = Configuration::read(request);
    let attributes = &request.attributes;
    let exists =
        request.cluster.objects.find(&request.kind, &attributes.namespace, &attributes.name).await?.is_some();
    if !exists && attributes.subresource.is_none() {
        let config = config.as_ref().map_err(Status::clone)?;
        let applied = config.applied_to(None, request, options)?;
        let uid = object_meta::text(object_meta::of(config.object()), "uid");
        if !uid.is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            return Err(Status::conflict(&request.kind.group_resource(), &attributes.name, &why));
        }
        match create_object(request, applied.object.into_owned(), options, None).await {
            // Created concurrently: apply to that.
            Err(status) if status.code == 409 => {}
            created => {
                let (code, written) = created?;
                return written.answer(request, code).await;
            }
        }
    }
    let written = write(request, options.dry_run, |old| {
        let config = config.as_ref().map_err(Status::clone)?;
        let applied = config.applied_to(Some(old), request, options)?;
        let changed = applied.changed;
        let mut object = applied.object.into_owned();
        prepare::set_namespace(request, &mut object)?;
        if !changed {
            return Ok(object);
        }
        // Without a resourceVersion, the configuration applies to any version.
        if object_meta::text(object_meta::of(config.object()), "resourceVersion").is_empty() {
            metadata_mut(&mut object).remove("resourceVersion");
        }
        complete(request, old, object, None)
    })
    .await?;
    written.answer(request, 200).await
}

/// An applied configuration. The field manager checks its kind and version.
pub(crate) struct Configuration(Decoded);

impl Configuration {
    pub(crate) fn read(request: &Request) -> Result<Self, Status> {
        let decoded =
            decode::yaml_or_json(&request.body).map_err(|error| undecodable_patch(&error.to_string()))?;
        if !decoded.value.is_object() && !decoded.value.is_null() {
            let found = go_text::json_type(&decoded.value);
            let why =
                format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            return Err(undecodable_patch(&format!("error unmarshaling JSON: while decoding JSON: {why}")));
        }
        Ok(Self(decoded))
    }

    /// Applies the configuration to the live object, or to none.
    fn applied_to<'a>(
        &self,
        live: Option<&'a Value>,
        request: &Request,
        options: &WriteOptions,
    ) -> Result<Applied<'a>, Status> {
        let (manager, force) = (options.field_manager.as_str(), options.force.unwrap_or(false));
        let mut applied = prepare::with_field_manager(request, |fields| {
            fields.apply(live, self.object(), manager, force, now())
        })?;
        if request.kind.flags.custom
            && let Cow::Owned(object) = &mut applied.object
        {
            // The typed patch treats an object without properties as a map of anything; its schema does not.
            let schema = request.kind.schema.get();
            prune(object, schema, Root::Resource);
            prepare::refuse_invalid(&request.kind, object, &validate_nulls(object, schema))?;
        }
        self.report_duplicates(request, options.field_validation)?;
        check_name(request, &applied.object)?;
        Ok(applied)
    }

    pub(crate) fn object(&self) -> &Value {
        &self.0.value
    }

    /// Reports duplicate keys by line, whether in YAML or in JSON, as fieldValidation says. The last one wins.
    pub(crate) fn report_duplicates(
        &self,
        request: &Request,
        validation: FieldValidation,
    ) -> Result<(), Status> {
        let found = |decoded: &Decoded| {
            decoded.strict_errors(&request.body, Vec::new(), StrictOrder::DuplicatesFirst)
        };
        if validation == FieldValidation::Ignore || found(&self.0).is_empty() {
            return Ok(());
        }
        let errors = decode::yaml(&request.body).map_or_else(|_| found(&self.0), |decoded| found(&decoded));
        if validation == FieldValidation::Strict {
            let joined = errors.join(", ");
            let why = format!("error strict decoding patch: error converting YAML to JSON: {joined}");
            return Err(Status::bad_request(why));
        }
        decode::strict_warnings(&errors).for_each(|error| request.warn(error));
        Ok(())
    }
}
