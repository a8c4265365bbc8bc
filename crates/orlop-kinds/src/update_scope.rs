//! Update scopes: the fields that a write through one endpoint may change and own.
//!
//! kube-apiserver expresses the first as assignments in `PrepareForUpdate` and the second as `GetResetFields`.

/// Fields that a write through one endpoint cannot change, and those it cannot own.
#[derive(Clone, Copy, Debug)]
pub struct UpdateScope {
    /// JSON pointers of fields that keep their stored value…
    pub preserved: &'static [&'static str],
    /// …except for these parts of them.
    pub except: &'static [&'static str],
    /// Fields that no field manager comes to own.
    pub reset: ResetFields,
}

/// Fields that no field manager comes to own.
#[derive(Clone, Copy, Debug)]
pub enum ResetFields {
    /// These fields and everything below them.
    Paths(&'static [&'static str]),
    /// Everything except these fields.
    AllExcept(&'static [&'static str]),
}

/// Update scopes by endpoint; the empty name is the object itself.
pub type UpdateScopes = &'static [(&'static str, UpdateScope)];

impl UpdateScope {
    /// Scope without restrictions.
    pub const EVERYTHING: Self = Self::without(&[]);
    /// Scope of the object itself, where the kind has a status subresource.
    pub const ALL_BUT_STATUS: Self = Self::without(&["/status"]);
    /// Scope of most built-in kinds' status subresource: status and metadata.
    pub const STATUS: Self =
        Self { preserved: &[""], except: &["/metadata", "/status"], reset: ResetFields::Paths(&["/spec"]) };
    /// Scope of custom resources' status subresource: status only.
    pub const CUSTOM_STATUS: Self =
        Self { preserved: &[""], except: &["/status"], reset: ResetFields::Paths(&["/metadata", "/spec"]) };
    /// Scope of newer built-in kinds' status subresource: status, and no metadata that users set.
    pub const STATUS_WITHOUT_METADATA: Self = Self::preserving(
        &[
            "/spec",
            "/metadata/annotations",
            "/metadata/deletionTimestamp",
            "/metadata/finalizers",
            "/metadata/generation",
            "/metadata/labels",
            "/metadata/ownerReferences",
        ],
        &["/metadata", "/spec"],
    );

    /// Returns a scope that preserves and resets the same fields.
    pub const fn without(fields: &'static [&'static str]) -> Self {
        Self::preserving(fields, fields)
    }

    /// Returns a scope that preserves some fields and resets others.
    pub const fn preserving(preserved: &'static [&'static str], reset: &'static [&'static str]) -> Self {
        Self { preserved, except: &[], reset: ResetFields::Paths(reset) }
    }
}

/// Status subresource of newer built-in kinds.
pub(crate) const STATUS_WITHOUT_METADATA: UpdateScopes = &[("status", UpdateScope::STATUS_WITHOUT_METADATA)];

/// Status subresource that preserves and resets all metadata.
pub(crate) const STATUS_ONLY: UpdateScopes = &[("status", UpdateScope::without(&["/metadata", "/spec"]))];
