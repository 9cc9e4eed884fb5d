//! Where the fields of an event go: the `format/` files of a PMU.
//!
//! What it is: a file says `config1:0,4-7`; a field is then a set of bits of one configuration word, lowest first.
//!
//! **Invariant:** pure; it knows no file and no PMU.
//!
//! Source: `Documentation/ABI/testing/sysfs-bus-event_source-devices-format`.

/// The configuration word of an attribute that a field lives in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConfigWord {
    /// `config`.
    Config,
    /// `config1`.
    Config1,
    /// `config2`.
    Config2,
    /// `config3` (kernel 6.3 and later).
    Config3,
    /// `config4` (newest kernels).
    Config4,
}

impl ConfigWord {
    /// The name that the kernel gives the word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Config1 => "config1",
            Self::Config2 => "config2",
            Self::Config3 => "config3",
            Self::Config4 => "config4",
        }
    }

    /// The word of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Config, Self::Config1, Self::Config2, Self::Config3, Self::Config4];
        all.into_iter().find(|word| word.name() == name)
    }
}

/// A value that has more bits than its field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueTooLarge {
    /// The largest value that fits.
    pub max: u64,
}

/// One field: some bits of one configuration word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Format {
    /// The word.
    pub word: ConfigWord,
    /// The bits of the word that belong to the field. Never 0.
    mask: u64,
}

impl Format {
    /// Reads the text of a format file. `None` if it isn't one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (word, ranges) = text.trim().split_once(':')?;
        let word = ConfigWord::from_name(word)?;
        let mut mask = 0u64;
        for range in ranges.split(',') {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (low, high) = (bit(low)?, bit(high)?);
            if low > high {
                return None;
            }
            mask |= ones(high - low + 1) << low;
        }
        (mask != 0).then_some(Self { word, mask })
    }

    /// The bits of the word that belong to the field.
    #[must_use]
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// How many bits the field has: 1 to 64.
    #[must_use]
    pub fn width(&self) -> u32 {
        self.mask.count_ones()
    }

    /// The largest value that fits.
    #[must_use]
    pub fn max(&self) -> u64 {
        ones(self.width())
    }

    /// Spreads a value over the bits of the field; all other bits are 0.
    ///
    /// # Errors
    /// [`ValueTooLarge`] if the value has more bits than the field.
    pub fn scatter(&self, value: u64) -> Result<u64, ValueTooLarge> {
        if value > self.max() {
            return Err(ValueTooLarge { max: self.max() });
        }
        let (mut rest, mut value, mut word) = (self.mask, value, 0);
        while rest != 0 {
            let lowest = rest & rest.wrapping_neg();
            word |= lowest * (value & 1);
            value >>= 1;
            rest ^= lowest;
        }
        Ok(word)
    }
}

/// A number with the lowest `count` bits set; `count` is 1 to 64.
fn ones(count: u32) -> u64 {
    u64::MAX >> (64 - count.clamp(1, 64))
}

fn bit(text: &str) -> Option<u32> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|&n| n < 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_shifts() {
        let umask = Format::parse("config:8-15\n").unwrap();
        assert_eq!((umask.word, umask.width(), umask.max()), (ConfigWord::Config, 8, 0xff));
        assert_eq!(umask.scatter(0x41), Ok(0x4100));
        assert_eq!(umask.scatter(0x100), Err(ValueTooLarge { max: 0xff }));
    }

    #[test]
    fn several_ranges_fill_from_the_lowest_bit() {
        let event = Format::parse("config1:0,4-7,32-35").unwrap();
        assert_eq!((event.word, event.width()), (ConfigWord::Config1, 9));
        assert_eq!(event.scatter(0x1ff), Ok(0xf_0000_00f1));
        assert_eq!(event.scatter(0b1_0000_0010), Ok(0x8_0000_0010));
        assert_eq!(event.scatter(0x200), Err(ValueTooLarge { max: 0x1ff }));
    }

    #[test]
    fn the_order_in_the_file_does_not_matter() {
        assert_eq!(Format::parse("config:32-35,0-7"), Format::parse("config:0-7,32-35"));
    }

    #[test]
    fn whole_words_and_single_bits() {
        assert_eq!(Format::parse("config2:0-63").unwrap().scatter(u64::MAX), Ok(u64::MAX));
        assert_eq!(Format::parse("config:63").unwrap().scatter(1), Ok(1 << 63));
        assert_eq!(Format::parse("config3:0").unwrap().word, ConfigWord::Config3);
    }

    #[test]
    fn what_is_no_format_is_refused() {
        let none = "|config|config:|config:7-0|config:64|config9:0|config:0-|config:x|config: 1|config:0,,1";
        for text in none.split('|') {
            assert_eq!(Format::parse(text), None, "{text}");
        }
    }
}
